"""A Prometheus histogram that takes many equal observations at once, and exact quantiles of recent values."""

from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import Final

from hmas.laws.scoring import quantile


class Histogram:
    """Counts observations per bucket. `bounds` are the ascending upper bounds; one more bucket has no bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds: Final = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += count
        self.sum += value * count

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns (upper bound `le`, cumulative count) per bucket, as Prometheus expects them."""
        names = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class RecentValues:
    """Keeps the last `size` values, and the count and maximum of all values since the last reset."""

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)
        self.reset()

    def reset(self) -> None:
        self._values.clear()
        self.count = 0
        self.max = 0.0

    def observe(self, value: float) -> None:
        self._values.append(value)
        self.count += 1
        if value > self.max:
            self.max = value

    def quantiles(self, *qs: float) -> list[float]:
        """Returns the given quantiles of the values kept; NaN for each if there are none."""
        ordered = sorted(self._values)
        return [quantile(ordered, q) for q in qs]
