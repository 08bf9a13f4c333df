"""How much work comes that is cheaper than a given price: what a request of that price has to stand behind."""

from itertools import accumulate
from math import exp, log2

WINDOW_S = 20.0  # time constant of the measured arrivals
STEPS = 4  # price levels an octave
LOWEST, LEVELS = -20.0, 128  # log2 of the first level's price; levels in all


class ArrivingWork:
    """Work arriving per second by price (work per unit of value), exponentially forgotten. An arrival costs O(1), a
    question a look at each level, once per instant."""

    __slots__ = ("_began_s", "_below", "_levels", "_seen_s", "_summed_s")

    def __init__(self) -> None:
        self._levels = [0.0] * LEVELS
        self._seen_s = [0.0] * LEVELS
        self._below = [0.0] * (LEVELS + 1)
        self._summed_s: float | None = None  # when `_below` was made; None: something came since
        self._began_s: float | None = None

    def add(self, now_s: float, price: float, work: float) -> None:
        """Work of one arrival."""
        if self._began_s is None:
            self._began_s = now_s
        level = _level(price)
        self._levels[level] = self._levels[level] * exp((self._seen_s[level] - now_s) / WINDOW_S) + work
        self._seen_s[level] = now_s
        self._summed_s = None

    def rate_below(self, now_s: float, price: float) -> float:
        """Of work cheaper than `price`, to a level."""
        if self._summed_s != now_s:
            self._sum(now_s)
        return max(0.0, self._below[_level(price)])

    def _sum(self, now_s: float) -> None:
        span_s = 0.0 if self._began_s is None else now_s - self._began_s
        weight_s = max(1.0, WINDOW_S * (1.0 - exp(-span_s / WINDOW_S)))
        rates = (
            work * exp((seen_s - now_s) / WINDOW_S) / weight_s
            for work, seen_s in zip(self._levels, self._seen_s, strict=True)
        )
        self._below = list(accumulate(rates, initial=0.0))
        self._summed_s = now_s


def _level(price: float) -> int:
    if price <= 0.0:
        return 0
    return min(LEVELS - 1, max(0, int((log2(price) - LOWEST) * STEPS)))
