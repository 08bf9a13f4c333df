"""What an engine is expected to hold of a prompt in its prefix cache."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpectedCached:
    """What an engine was taken to hold of a prompt when it was granted: `tokens` of it. `prompt` are those of a former
    prompt alone, and `answer` those of the answer to it that are in memory. `marks`: the ends and last uses of its
    nodes. `stamp`: what had been used until then."""

    tokens: int = 0
    prompt: float = 0.0
    answer: float = 0.0
    marks: tuple[tuple[float, float], ...] = ()
    stamp: float = 0.0


NOTHING_EXPECTED = ExpectedCached()
