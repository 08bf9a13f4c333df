"""Adapts Niyama's alpha, the weight of predicted work in the priority, to the load (Niyama §4.2); both the worker's
Hybrid topology and the simulated Niyama engine use it."""

from math import inf

PERIOD_S = 1.0
CALM_S = 20.0
FIRST_ALPHA = 1.0


class LoadAlpha:
    """Keeps alpha (`value`) between `low` and `high`, by the load that the scheduler itself sees: it doubles after a
    second in which requests had to be relegated, at least to `FIRST_ALPHA`, and is halved after `CALM_S` without any;
    from `FIRST_ALPHA` or less it falls to `low` at once."""

    __slots__ = ("_checked_s", "_high", "_low", "_pressed_s", "_relegations", "value")

    def __init__(self, low: float, high: float) -> None:
        self.value = self._low = low
        self._high = high
        self._checked_s = self._pressed_s = -inf
        self._relegations = 0

    def step(self, now_s: float, relegations: int) -> bool:
        """Updates alpha and tells whether it changed. `relegations` counts all relegated requests since the start."""
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
