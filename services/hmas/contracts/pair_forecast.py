"""What a worker expected of a request when it chose between one engine and two."""

from dataclasses import dataclass
from enum import StrEnum


class PairReason(StrEnum):
    """Why a request was split between two engines, or was not."""

    FEWER_LATE = "fewer_late"
    EVEN = "even"  # about as many are late either way, and engines keep to prompts or to answers where that is so
    RULE = "rule"  # what is meant for the worker's engines left no choice
    NO_OTHER = "no_other"  # nothing else could take it then


@dataclass(frozen=True, slots=True, kw_only=True)
class PairForecast:
    """What was expected if `engine` answers and `prefill` computes the prompt, empty if the same one does both.

    `first_s`: seconds from the grant to the first token, without the first step of an engine that reads the prompt.
    `late`: how many requests are expected to be late by it, itself included unless its own deadline is past or given
    up. `step_s`: seconds of a step of the answering engine with the request on it; 0: unknown."""

    engine: str
    prefill: str
    first_s: float
    late: float
    step_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDecision:
    """The pair that was taken, of one engine or of two, and the best of the other kind; None: there was none."""

    taken: PairForecast
    other: PairForecast | None
    reason: PairReason
