"""Dynamic chunking: the largest prefill chunk that no running decode's next token would be late for (Niyama §3.3)."""

from dataclasses import dataclass
from math import inf

MIN_CHUNK_TOKENS = 64
SLACK_SHARE = 0.9  # of the slack, since step times are estimates
SMOOTHING = 0.1  # weight of the newest step


@dataclass(slots=True)
class StepCost:
    """Online estimates of this engine, seconds: a step without prefill, and one prefill token more. 0: unknown yet."""

    decode_s: float = 0.0
    prefill_token_s: float = 0.0

    def observe(self, step_s: float, prefill_tokens: int) -> None:
        """A step took `step_s` and computed `prefill_tokens` beside its decodes."""
        if not 0.0 < step_s < inf:
            return
        if prefill_tokens <= 0:
            self.decode_s = _smooth(self.decode_s, step_s)
        elif self.decode_s > 0.0:
            extra_s = max(0.0, step_s - self.decode_s)
            self.prefill_token_s = _smooth(self.prefill_token_s, extra_s / prefill_tokens)

    def chunk(self, slack_s: float, most: int) -> int:
        """Prefill tokens that fit a step which must end within `slack_s`; `most` where nothing is known."""
        if slack_s == inf or self.prefill_token_s <= 0.0:
            return most
        tokens = (SLACK_SHARE * slack_s - self.decode_s) / self.prefill_token_s
        return int(min(most, max(MIN_CHUNK_TOKENS, tokens)))


def _smooth(before: float, value: float) -> float:
    return value if before <= 0.0 else before + SMOOTHING * (value - before)


@dataclass(slots=True)
class DecodePace:
    """One request's TPOT promise: token n is due n - 1 times `tpot_s` after its first."""

    tpot_s: float
    first_s: float

    def slack_s(self, now_s: float, tokens: int) -> float:
        """Until the token after `tokens` is due."""
        return self.first_s + tokens * self.tpot_s - now_s
