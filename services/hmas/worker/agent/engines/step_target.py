"""Which TPOT SLO an engine's step is held to, and what a step costs without any request."""

from collections.abc import Iterable
from math import exp, inf


def worthy_slo_s(slos_s: Iterable[float], base_s: float) -> float:
    """Returns the TPOT SLO, of those of the requests that are offered, that an overloaded engine should keep.

    At a step of s seconds, of which `base_s` pass without any request, an engine does (1 - base/s) seconds of work per
    second. A slower step serves more requests, and more of them too slowly: those with an SLO below s. So the most are
    on time at the s with the highest (1 - base/s) times the number of SLOs of at least s. A few tight SLOs, or one that
    an idle engine cannot meet, do not count for much or at all. Without any that can be met it is infinite.
    """
    best_s, most = inf, 0.0
    for kept, slo_s in enumerate(sorted(slos_s, reverse=True), 1):
        rate = kept * (1.0 - base_s / slo_s) if slo_s > base_s else 0.0
        if rate > most:
            best_s, most = slo_s, rate
    return best_s


class StepBase:
    """The part of an engine's step that passes without any request: the intercept of a line through what was measured,
    step over running requests, by least squares in which older measurements count less and less."""

    __slots__ = ("_memory_s", "_seen_s", "_sums")

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._seen_s = -inf
        self._sums = [0.0] * 5  # of 1, x, y, xx, xy

    def add(self, now_s: float, running: int, step_s: float) -> None:
        if running <= 0 or step_s <= 0.0:
            return
        keep = exp(-max(0.0, now_s - self._seen_s) / self._memory_s)
        self._seen_s = now_s
        x = float(running)
        seen = (1.0, x, step_s, x * x, x * step_s)
        self._sums = [keep * total + value for total, value in zip(self._sums, seen, strict=True)]

    @property
    def seconds(self) -> float:
        """0 while nothing was measured. A line that falls, or whose intercept is below 0, tells of no base."""
        n, x, y, xx, xy = self._sums
        if n <= 0.0:
            return 0.0
        spread = n * xx - x * x
        slope = max(0.0, (n * xy - x * y) / spread) if spread > 1e-6 * n * xx else 0.0
        return max(0.0, (y - slope * x) / n)
