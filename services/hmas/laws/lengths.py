"""An application's output length from its history, as Niyama §3.4 has it."""

from dataclasses import dataclass
from math import inf, sqrt


@dataclass(slots=True, kw_only=True)
class LengthHistory:
    """Running mean and variance (Welford) of one application's output lengths; of the last `memory` or so of them,
    where one is given."""

    memory: float = inf
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    upper: float = 0.0  # over-approximated by two standard deviations (§3.4); 0 before any is known

    def add(self, tokens: float) -> None:
        self.count += 1
        share = 1.0 / min(self.count, self.memory)
        delta = tokens - self.mean
        self.mean += share * delta
        self.variance = (1.0 - share) * (self.variance + share * delta * delta)
        self.upper = self.mean + 2.0 * sqrt(self.variance)
