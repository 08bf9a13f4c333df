"""Engine profiles as options name them: a built-in one by its name, or a file of `hmas calibrate`."""

from pathlib import Path

from hmas.engine.core.profile import EngineProfile, builtin_profile, parse_profiles


def is_file(name: str) -> bool:
    """Tells whether `name` is the path of a profile file; names of built-in profiles have neither slash nor suffix."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def named_profile(name: str) -> EngineProfile:
    """Returns the built-in profile of that name, or the first profile of the file at that path.

    Raises ValueError, which says what to do, for an unknown name and for a file that cannot be read.
    """
    if not is_file(name):
        return builtin_profile(name)
    try:
        profiles = parse_profiles(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the engine profile {name} cannot be read ({error}): `hmas calibrate URL` writes one"
        ) from None
    if not profiles:
        raise ValueError(f"the file {name} holds no engine profile: `hmas calibrate URL` writes one")
    return next(iter(profiles.values()))
