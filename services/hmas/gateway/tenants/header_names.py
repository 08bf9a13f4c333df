"""Headers that a client sends for the mesh and that the mesh does not know: misspelt ones would change nothing, and
nobody would be told."""

from collections.abc import Iterable
from difflib import get_close_matches

_OURS = (b"x-slo-", b"x-hmas-", b"x-llm-d-slo-")
_MOST = 4  # that are named
_MAX_CHARS = 64


def unknown_names(raw: Iterable[tuple[bytes, bytes]], known: frozenset[bytes]) -> list[str]:
    """Returns the names, in lower case, of the headers that look as if they were for the mesh and are not `known`: the
    first few of them, each cut to a bound."""
    found = [name for name, _ in raw if name[:2] == b"x-" and name not in known and name.startswith(_OURS)]
    if not found:
        return []
    return [name[:_MAX_CHARS].decode("ascii", "replace") for name in list(dict.fromkeys(found))[:_MOST]]


def warning_of(unknown: Iterable[str], known: frozenset[bytes]) -> str:
    """Returns what the answer says of unknown headers: each with the known name that is nearest, if one is near."""
    by_stem = {_stem(name): name for name in sorted((name.decode() for name in known), key=len, reverse=True)}
    told = []
    for name in unknown:
        near = get_close_matches(_stem(name), by_stem, 1)
        told.append(f"unknown header {name}" + (f", did you mean {by_stem[near[0]]}?" if near else ""))
    return "; ".join(told)


def _stem(name: str) -> str:
    """Returns a name without the beginnings that many share, so that names count as alike by what they ask for."""
    for beginning in ("x-", "hmas-", "llm-d-", "slo-"):
        name = name.removeprefix(beginning)
    return name
