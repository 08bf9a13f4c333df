"""Estimates the output lengths of an application from its history (Niyama §3.4)."""

from dataclasses import dataclass
from math import inf, sqrt


@dataclass(slots=True, kw_only=True)
class LengthHistory:
    """Running mean and variance (Welford) of one application's output lengths, in tokens: over roughly its last
    `memory` requests, by default over all."""

    memory: float = inf
    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    upper: float = 0.0  # mean plus two standard deviations (§3.4); 0 before the first request

    def add(self, tokens: float) -> None:
        self.count += 1
        share = 1.0 / min(self.count, self.memory)
        delta = tokens - self.mean
        self.mean += share * delta
        self.variance = (1.0 - share) * (self.variance + share * delta * delta)
        self.upper = self.mean + 2.0 * sqrt(self.variance)
