"""Plans which points to measure within a budget of requests."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

SHORTEST_PROMPT = 16
PREFILL_LENGTHS = 8
PREFILL_REPEATS = 3
ROUNDS = 5  # how often all points are measured if the budget allows: a machine's speed changes over minutes
DECODE_TOKENS = 64
CONTEXT_SHARES = (0.02, 0.15, 0.4)  # prompt lengths of decode points, as shares of the longest prompt


@dataclass(frozen=True, slots=True)
class PlanPoint:
    """One point to measure: `batch` concurrent requests of `prompt_tokens` and `output_tokens` each."""

    kind: Literal["prefill", "decode"]
    prompt_tokens: int
    batch: int
    output_tokens: int
    repeat: int = 0

    @property
    def id(self) -> str:
        return f"{self.kind}-p{self.prompt_tokens}-b{self.batch}-o{self.output_tokens}-r{self.repeat}"


def make_plan(max_prompt: int, max_batch: int, budget: int) -> tuple[PlanPoint, ...]:
    """Returns points of at most `budget` requests in all, short prompts and small batches first.

    Points that exceed the budget are left out; a remainder pays for further rounds of all points. Raises ValueError if
    the budget is too small for a fit.
    """
    lengths = _geometric(SHORTEST_PROMPT, max(SHORTEST_PROMPT, max_prompt), PREFILL_LENGTHS)
    prefills = [PlanPoint("prefill", n, 1, 1, r) for r in range(PREFILL_REPEATS) for n in lengths]
    batches = [2**i for i in range(max_batch.bit_length()) if 2**i <= max_batch]
    if batches[-1] != max_batch:
        batches.append(max_batch)
    contexts = sorted({max(SHORTEST_PROMPT, int(share * max_prompt)) for share in CONTEXT_SHARES})
    decodes = [PlanPoint("decode", c, b, DECODE_TOKENS) for b in batches for c in contexts]
    chosen: list[PlanPoint] = []
    for point in [*prefills, *decodes]:
        if point.batch <= budget:
            budget -= point.batch
            chosen.append(point)
    for number in range(1, ROUNDS):
        again = [replace(point, repeat=point.repeat + number * PREFILL_REPEATS) for point in [*prefills, *decodes]]
        if requests_of(again) > budget:
            break
        budget -= requests_of(again)
        chosen += again
    kinds = [p.kind for p in chosen]
    if kinds.count("prefill") < 3 or kinds.count("decode") < 2:
        raise ValueError(
            f"a budget of {requests_of(chosen) + budget} requests is too small for a fit: allow at least 40 requests "
            "with --max-requests"
        )
    return tuple(chosen)


def requests_of(points: Iterable[PlanPoint]) -> int:
    return sum(point.batch for point in points)


def _geometric(first: int, last: int, count: int) -> list[int]:
    ratio = (last / first) ** (1 / (count - 1))
    return sorted({round(first * ratio**i) for i in range(count)})
