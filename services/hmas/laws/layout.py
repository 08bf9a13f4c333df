"""Pace classes: which class a request belongs to by its TPOT SLO, which engines a class gets, and which serve it while
some are down.

Gateways, workers and the meta controller all go by these functions, so that they agree without a message.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from hmas.contracts.control import MIXED, EngineClass, Layout, Split
from hmas.contracts.engine_kind import EngineKind

_ROUNDING_S = 1e-9  # an SLO that equals a cut belongs below it, whatever the last bit says
_NUMBER = re.compile("([0-9]+)")


def pace_class(cuts_s: Sequence[float], tpot_s: float) -> int:
    """Returns the class of a request with that TPOT SLO, in s: the number of cuts that are below it."""
    return bisect_left(cuts_s, tpot_s - _ROUNDING_S)


def engine_path(worker: str, engine: str) -> str:
    """Returns the path that names an engine within its pool: workers may have engines of the same name."""
    return f"{worker}/{engine}"


def natural(name: str) -> tuple[tuple[tuple[int, str], ...], str]:
    """Returns the key by which names stand in natural order: numbers in them by their value, so that e2 is before
    e10."""
    parts = _NUMBER.split(name)  # every second one is a number, which may have any length
    values = [part.lstrip("0") if odd % 2 else part for odd, part in enumerate(parts)]
    return tuple((len(value) if odd % 2 else 0, value) for odd, value in enumerate(values)), name


def in_class_order(paths: Iterable[str], order: Sequence[str], kinds: Mapping[str, EngineKind]) -> list[str]:
    """Returns the engines at `paths` in the `order` in which classes get them. One that has no place in it comes right
    after the last engine of its kind that has, or after all others; several such stand in natural order."""
    rank, paths = {each: i for i, each in enumerate(order)}, list(paths)
    last: dict[EngineKind, int] = {}
    for each in paths:
        if each in rank and each in kinds:
            last[kinds[each]] = max(rank[each], last.get(kinds[each], 0))

    def key(path: str) -> tuple[int, tuple[object, ...]]:
        if path in rank:
            return rank[path], ()  # before all that join it
        beside = last.get(kinds[path], len(rank)) if path in kinds else len(rank)
        return beside, natural(path)

    return sorted(paths, key=key)


def engine_classes(layout: Layout, paths: Iterable[str]) -> dict[str, int]:
    """Returns the class of the engine at each path; one that the layout does not name belongs to the last class."""
    named = {each.place: each.pace_class for each in layout.engines}
    last = len(layout.cuts_s)
    return {each: min(named.get(each, last), last) for each in paths}


def serving(classes: int, manned: Collection[int]) -> tuple[int, ...]:
    """Returns for each of `classes` classes the one whose engines serve it: itself if it is `manned`, otherwise the
    nearest stricter class that is, or else the nearest laxer one. Without any manned class all are served as one."""
    if not manned:
        return (0,) * classes
    return tuple(
        max((m for m in manned if m <= each), default=min((m for m in manned if m > each), default=0))
        for each in range(classes)
    )


def assigned(split: Split, paths: Sequence[str]) -> Layout:
    """Returns the layout of that shape over the engines at `paths`: the strictest class gets the first ones, and the
    last class what is left. Where there are fewer engines than classes, the layout is mixed."""
    if not split.cuts_s or len(paths) < len(split.engines):
        return MIXED
    homes, first = [], 0
    for number, count in enumerate(split.engines):
        last = number == len(split.engines) - 1
        needed = len(split.engines) - 1 - number  # one for each class that is still to come
        end = len(paths) if last else min(first + count, len(paths) - needed)
        homes += [EngineClass(each, number) for each in paths[first:end]]
        first = end
    return Layout(split.cuts_s, tuple(homes))


def bounds_ms(cuts_s: Sequence[float], number: int) -> str:
    """Returns the TPOT SLOs of a class in words, such as "<= 84 ms", "84-111 ms" or "> 111 ms"; "" where there are no
    cuts."""
    if not cuts_s:
        return ""
    low = 1000.0 * cuts_s[number - 1] if number else 0.0
    high = 1000.0 * cuts_s[number] if number < len(cuts_s) else inf
    if not number:
        return f"<= {high:.4g} ms"
    return f"> {low:.4g} ms" if high == inf else f"{low:.4g}-{high:.4g} ms"


def split_of(layout: Layout) -> Split:
    """Returns the shape of a layout; mixed if one of its classes has no engine."""
    counts = _counts(layout)
    return Split(layout.cuts_s, counts) if layout.cuts_s and min(counts) > 0 else Split()


def _counts(layout: Layout) -> tuple[int, ...]:
    """Returns the number of engines of each class."""
    return tuple(sum(each.pace_class == number for each in layout.engines) for number in range(len(layout.cuts_s) + 1))


def described(layout: Layout) -> str:
    """Returns a layout in words: each class with its number of engines, or "mixed"."""
    return described_split(Split(layout.cuts_s, _counts(layout)))


def described_split(split: Split) -> str:
    """Returns a split in words: each class with its number of engines, or "mixed"."""
    if not split.cuts_s:
        return "mixed"
    return ", ".join(f"{bounds_ms(split.cuts_s, number)}: {count}" for number, count in enumerate(split.engines))
