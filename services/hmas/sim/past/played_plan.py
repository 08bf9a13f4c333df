"""The engines of a replay under a policy: those of now, another number of them, or those of a plan with its steps."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.rehearsal import InstanceCount
from hmas.engine.core.catalogued import profile_of
from hmas.engine.core.profile import EngineProfile
from hmas.sim.engine_changes import ChangeKind, EngineChange
from hmas.sim.past.fitted import mix_of


@dataclass(frozen=True, slots=True)
class PlayedEngines:
    """The profiles of all engines of a replay, those that join and those that leave too, in the order in which classes
    get them."""

    profiles: tuple[EngineProfile, ...]
    changes: tuple[EngineChange, ...] = ()


def played_engines(
    profiles: Sequence[EngineProfile],
    engines: tuple[InstanceCount, ...] | int | None,
    ordered_s: float,
    leave_after_s: float = 0.0,
) -> PlayedEngines:
    """Returns the engines of a replay of a pool with these under a policy's `engines` and `leave_after_s`. Of an
    instance type are those whose profile has its name. A plan's steps are ordered at the instant `ordered_s` of the
    replay's clock, below 0 if nothing came for a while after it: a step that was taken by then is taken when the replay
    begins."""
    if engines is None:
        return PlayedEngines(tuple(profiles))
    if isinstance(engines, int):
        return PlayedEngines(mix_of(profiles, engines))
    return _planned(profiles, engines, ordered_s, ordered_s + leave_after_s)


def _planned(
    profiles: Sequence[EngineProfile], plan: Sequence[InstanceCount], ordered_s: float, leave_s: float
) -> PlayedEngines:
    """Keeps the first engines of each type. One that joins is like those of its type that the pool has, and otherwise
    as the catalogue says."""
    measured = {profile.name: profile for profile in reversed(profiles)}
    left, played, changes = list(profiles), list[EngineProfile](), list[EngineChange]()
    for each in plan:
        kind = each.instance_type
        kept = [profile for profile in left if profile.name == kind.name][: each.count]
        for profile in kept:
            left.remove(profile)
        played += kept
        for _ in range(each.count - len(kept)):
            changes.append(EngineChange(max(0.0, ordered_s + kind.start_s), ChangeKind.JOIN, f"e{len(played)}"))
            played.append(measured.get(kind.name) or _as_catalogued(kind))
    for profile in left:
        changes.append(EngineChange(max(0.0, leave_s), ChangeKind.DRAIN, f"e{len(played)}"))
        played.append(profile)
    return PlayedEngines(tuple(played), tuple(changes))


def _as_catalogued(kind: InstanceType) -> EngineProfile:
    return profile_of(kind).with_limits(enable_prefix_caching=False)
