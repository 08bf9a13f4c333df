"""The estimates that a request carries until cognition has tagged it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Assumption:
    """The estimates for a request without tags: median and 90 % quantile of its output length in tokens, predicted
    seconds of prefill, and seconds per output token."""

    output_tokens: float
    output_tokens_p90: float
    ttft_s: float
    tpot_s: float
