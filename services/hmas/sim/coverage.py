"""Counts how often answers outgrow the length bound under which they were admitted, apart from what the agents count.

The bound is the one that the worker reserved for, at the grant or when tags came that were later than the grant, and
never a later one. The length is the true one, so that requests that were cut off count as well.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from hmas.sim.workload import Journey

FIFTHS = 5


@dataclass(slots=True, kw_only=True)
class BoundTally:
    """Of `admitted` requests, `outgrown` had answers longer than their bound."""

    admitted: int = 0
    outgrown: int = 0

    def add(self, outgrown: bool) -> None:
        self.admitted += 1
        self.outgrown += outgrown


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The requests of one run that workers admitted, in all, by prompt length (one tally per edge of the fence's
    buckets and one for longer prompts) and by the fifth of the offered time in which they arrived. `at_grant` tallies
    the bounds of the grants, without the tags that came after them. `reserved_blocks` are the KV blocks that their
    bounds stand for, and `unused_blocks` those of them that their answers never filled."""

    total: BoundTally
    buckets: tuple[BoundTally, ...]
    fifths: tuple[BoundTally, ...]
    at_grant: BoundTally
    reserved_blocks: int
    unused_blocks: int


def coverage(
    journeys: Iterable[Journey], edges: Sequence[int], duration_s: float, block_tokens: int, longest: int
) -> Coverage:
    """Returns the coverage of a run. `edges` are the upper edges of the prompt-length buckets but the last, `longest`
    is the engines' context in tokens, beyond which nothing is reserved."""
    total, at_grant = BoundTally(), BoundTally()
    buckets = tuple(BoundTally() for _ in (*edges, longest))
    fifths = tuple(BoundTally() for _ in range(FIFTHS))
    reserved = unused = 0
    for journey in journeys:
        if journey.bound_tokens is None or journey.granted_tokens is None:
            continue
        request, tokens = journey.offered.request, journey.offered.output_tokens
        fifth = min(FIFTHS - 1, int(FIFTHS * request.arrival_s / duration_s))
        for tally in (total, buckets[bisect_left(edges, request.prompt_tokens)], fifths[fifth]):
            tally.add(tokens > journey.bound_tokens)
        at_grant.add(tokens > journey.granted_tokens)
        held = ceil(min(request.prompt_tokens + journey.bound_tokens, longest) / block_tokens)
        reserved += held
        unused += max(0, held - ceil((request.prompt_tokens + tokens) / block_tokens))
    return Coverage(
        total=total,
        buckets=buckets,
        fifths=fifths,
        at_grant=at_grant,
        reserved_blocks=reserved,
        unused_blocks=unused,
    )
