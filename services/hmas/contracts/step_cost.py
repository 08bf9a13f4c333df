"""What one step of an engine costs, for the emulator and for plans."""

from dataclasses import dataclass, fields
from math import inf, sqrt


@dataclass(frozen=True, slots=True)
class StepCostModel:
    """The duration of one engine step in seconds:

    t_step = c0 + c_p * prefill_tokens + c_d * decode_seqs + c_k * context_tokens + c_pp * prefill_pairs

    `context_tokens` is summed over the decoding sequences and includes the token being computed. `prefill_pairs` is the
    attention work of a prefill chunk, chunk * (context before it + chunk / 2); its sum over the chunks of a prompt
    does not depend on how the prompt was cut. Raises ValueError unless all coefficients are finite, c0_s is above 0
    and the others are at least 0.
    """

    c0_s: float
    c_p_s: float
    c_d_s: float
    c_k_s: float
    c_pp_s: float = 0.0

    def __post_init__(self) -> None:
        for f in fields(self):
            if not 0.0 <= getattr(self, f.name) < float("inf"):
                raise ValueError(f"{f.name} must be a finite number of seconds, 0 or more, got {getattr(self, f.name)}")
        if self.c0_s <= 0.0:
            raise ValueError("c0_s must be above 0: a step that takes no time never ends")

    def step_s(self, prefill_tokens: int, decode_seqs: int, context_tokens: int, prefill_pairs: float) -> float:
        return (
            self.c0_s
            + self.c_p_s * prefill_tokens
            + self.c_d_s * decode_seqs
            + self.c_k_s * context_tokens
            + self.c_pp_s * prefill_pairs
        )

    def times(self, factor: float) -> "StepCostModel":
        """Returns the costs of an engine that takes `factor` times as long for everything."""
        return StepCostModel(*(factor * getattr(self, f.name) for f in fields(self)))

    def prefill_s(self, tokens: int, pairs: float) -> float:
        """Returns the seconds that `tokens` prefill tokens with `pairs` of attention work add to a step."""
        return self.c_p_s * tokens + self.c_pp_s * pairs

    def prefill_within(self, seconds: float, context: int) -> float:
        """Returns the longest chunk (tokens) after `context` computed tokens that adds at most `seconds` to a step."""
        if seconds <= 0.0:
            return 0.0
        linear_s = self.c_p_s + self.c_pp_s * context  # of s = linear * x + c_pp / 2 * x^2
        root = linear_s + sqrt(linear_s * linear_s + 2.0 * self.c_pp_s * seconds)
        return 2.0 * seconds / root if root > 0.0 else inf
