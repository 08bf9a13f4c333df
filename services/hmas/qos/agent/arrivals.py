"""Statistics of the arrivals of a pool: the variation of inter-arrival times, and bursts."""

from hmas.qos.agent.ring import Ring
from hmas.qos.agent.statistics import Moments, merged_moments

_MAX_PENDING = 100_000


class ArrivalProcess:
    """The arrivals of the last `window_s`. Several gateways report in batches, so arrivals wait for `reorder_s` and are
    sorted before the gaps between them are measured."""

    def __init__(self, window_s: float, bucket_s: float, reorder_s: float) -> None:
        self._gaps: Ring[Moments] = Ring(window_s, bucket_s, Moments)
        self._seconds: Ring[list[int]] = Ring(window_s, 1.0, lambda: [0])
        self._reorder_s = reorder_s
        self._pending: list[float] = []
        self._last_s: float | None = None

    def offer(self, now_s: float, arrived_s: float) -> None:
        self._seconds.at(now_s)[0] += 1
        if len(self._pending) < _MAX_PENDING:
            self._pending.append(arrived_s)

    def settle(self, now_s: float) -> None:
        """Measures the gaps between arrivals that are so old that no earlier one is still to be reported."""
        horizon = now_s - self._reorder_s
        ready = sorted(t for t in self._pending if t <= horizon)
        if not ready:
            return
        self._pending = [t for t in self._pending if t > horizon]
        gaps = self._gaps.at(now_s)
        for arrived_s in ready:
            if self._last_s is not None:
                gaps.add(max(0.0, arrived_s - self._last_s))
            self._last_s = max(arrived_s, self._last_s or arrived_s)

    def cv(self, now_s: float) -> float:
        return merged_moments(self._gaps.live(now_s)).cv

    def burstiness(self, now_s: float) -> float:
        """Returns the arrivals of the busiest second over the mean per second; 0 without arrivals."""
        counts = [bucket[0] for bucket in self._seconds.live(now_s)]
        mean = sum(counts) / self._seconds.span_s(now_s)
        return max(counts) / mean if counts and mean > 0.0 else 0.0
