"""Niyama's two small laws: alpha by load (§4.2) and an application's output length from its history (§3.4).

Here because the worker's Hybrid topology and the simulated Niyama engine both go by them.
"""

from dataclasses import dataclass
from math import inf, sqrt

PERIOD_S = 1.0
CALM_S = 20.0
FIRST_ALPHA = 1.0


class LoadAlpha:
    """alpha, by the load that the scheduler itself sees: doubled after a second in which requests had to be relegated,
    halved after `CALM_S` without. Between `low` and `high`; from `FIRST_ALPHA` down it falls to `low` at once."""

    __slots__ = ("_checked_s", "_high", "_low", "_pressed_s", "_relegations", "value")

    def __init__(self, low: float, high: float) -> None:
        self.value = self._low = low
        self._high = high
        self._checked_s = self._pressed_s = -inf
        self._relegations = 0

    def step(self, now_s: float, relegations: int) -> bool:
        """Whether it moved. `relegations` counts all there were so far."""
        if now_s - self._checked_s < PERIOD_S:
            return False
        self._checked_s = now_s
        before = self.value
        if relegations > self._relegations:
            self._relegations, self._pressed_s = relegations, now_s
            self.value = min(self._high, max(2.0 * before, FIRST_ALPHA))
        elif now_s - self._pressed_s >= CALM_S:
            self._pressed_s = now_s
            self.value = max(self._low, before / 2.0) if before > FIRST_ALPHA else self._low
        return self.value != before


@dataclass(slots=True)
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
