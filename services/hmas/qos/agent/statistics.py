"""Statistics of a bucket that can be merged: moments, a latency sketch, a histogram; and the slope of a series."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from ddsketch import LogCollapsingLowestDenseDDSketch

from hmas.contracts.views import Tail

HISTOGRAM_FROM = 64  # tokens; the first bucket holds everything up to here
HISTOGRAM_BUCKETS = 12  # the last one holds everything above 65,536 tokens
SKETCH_ACCURACY = 0.01
SKETCH_BINS = 512  # enough for 1 ms to 30 s at 1 %; values over a wider range share the lowest bin


@dataclass(slots=True)
class Moments:
    """Count, sum and sum of squares of the values, from which mean and variation follow."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.squares += value * value

    def merge(self, other: "Moments") -> None:
        self.count += other.count
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def cv(self) -> float:
        """The coefficient of variation (population); 0 for fewer than two values or a sum of 0 or less."""
        if self.count < 2 or self.total <= 0.0:
            return 0.0
        variance = max(0.0, self.squares / self.count - self.mean**2)
        return sqrt(variance) / self.mean


class LatencySketch:
    """Quantiles of a stream of durations, each within 1 % of the true one. It allocates nothing while it is empty."""

    __slots__ = ("_sketch",)

    def __init__(self) -> None:
        self._sketch: LogCollapsingLowestDenseDDSketch | None = None

    def add(self, value: float) -> None:
        if self._sketch is None:
            self._sketch = LogCollapsingLowestDenseDDSketch(SKETCH_ACCURACY, SKETCH_BINS)
        self._sketch.add(max(0.0, value))

    def merge(self, other: "LatencySketch") -> None:
        if other._sketch is None:
            return
        if self._sketch is None:
            self._sketch = LogCollapsingLowestDenseDDSketch(SKETCH_ACCURACY, SKETCH_BINS)
        self._sketch.merge(other._sketch)

    def quantile(self, q: float) -> float:
        """Returns the q-quantile, q in [0, 1]; 0 while the sketch is empty."""
        return float(self._sketch.get_quantile_value(q) or 0.0) if self._sketch is not None else 0.0

    def tail(self) -> Tail:
        count = int(self._sketch.count) if self._sketch is not None else 0
        return Tail(count, self.quantile(0.50), self.quantile(0.95), self.quantile(0.99))


def merged_moments(parts: Iterable[Moments]) -> Moments:
    result = Moments()
    for part in parts:
        result.merge(part)
    return result


def merged_sketch(parts: Iterable[LatencySketch]) -> LatencySketch:
    result = LatencySketch()
    for part in parts:
        result.merge(part)
    return result


def histogram_bucket(tokens: int) -> int:
    """Returns the index of the histogram's bucket: 0 for up to 64 tokens, 1 for up to 128, 2 for up to 256, ..."""
    doublings = (max(tokens, 1) - 1) // HISTOGRAM_FROM
    return min(doublings.bit_length(), HISTOGRAM_BUCKETS - 1)


def relative_slope(points: Sequence[tuple[float, float]], floor: float) -> float:
    """Returns the least-squares slope of the points (x, y) over the mean of y, or over `floor` if that is larger; 0 for
    fewer than 3 points."""
    if len(points) < 3:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread <= 0.0:
        return 0.0
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return slope / max(mean_y, floor)
