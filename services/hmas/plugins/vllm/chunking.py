"""Dynamic chunking: the largest prefill chunk that makes no decoding request's next token late (Niyama §3.3)."""

from dataclasses import dataclass
from math import inf

MIN_CHUNK_TOKENS = 64
SLACK_SHARE = 0.9  # share of the slack that is used, because step times are estimates
SMOOTHING = 0.1  # weight of the newest step in the running estimates


@dataclass(slots=True)
class StepCost:
    """Running estimates of this engine's speed, in s; 0 means not yet known.

    `decode_s` is the duration of a step without prefill, `prefill_token_s` what one prefill token adds to a step.
    """

    decode_s: float = 0.0
    prefill_token_s: float = 0.0

    def observe(self, step_s: float, prefill_tokens: int) -> None:
        """Updates the estimates by a step that took `step_s` and computed `prefill_tokens` besides decode tokens."""
        if not 0.0 < step_s < inf:
            return
        if prefill_tokens <= 0:
            self.decode_s = _smooth(self.decode_s, step_s)
        elif self.decode_s > 0.0:
            extra_s = max(0.0, step_s - self.decode_s)
            self.prefill_token_s = _smooth(self.prefill_token_s, extra_s / prefill_tokens)

    def chunk(self, slack_s: float, most: int) -> int:
        """Returns how many prefill tokens fit a step that must end within `slack_s`, from `MIN_CHUNK_TOKENS` (even
        if they do not fit) to `most`; `most` if the slack is infinite or no estimate exists yet."""
        if slack_s == inf or self.prefill_token_s <= 0.0:
            return most
        tokens = (SLACK_SHARE * slack_s - self.decode_s) / self.prefill_token_s
        return int(min(most, max(MIN_CHUNK_TOKENS, tokens)))


def _smooth(before: float, value: float) -> float:
    return value if before <= 0.0 else before + SMOOTHING * (value - before)


@dataclass(slots=True)
class DecodePace:
    """One request's token deadlines: token n is due (n - 1) * `tpot_s` after the first token, at `first_s`."""

    tpot_s: float
    first_s: float

    def slack_s(self, now_s: float, tokens: int) -> float:
        """Returns the time (s) until the token after the first `tokens` is due; negative if it is late."""
        return self.first_s + tokens * self.tpot_s - now_s
