"""The time a new request would wait in a pool, from QoS's view V_short or, without one, from the workers' backlogs."""

from collections.abc import Sequence

from hmas.contracts.views import VShort
from hmas.gateway.agent.config import WaitConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.laws.epochs import is_outdated


class WaitEstimator:
    """Estimates waiting times in seconds; keeps the last V_short of each pool and when it came."""

    def __init__(self, config: WaitConfig) -> None:
        self._config = config
        self._views: dict[str, tuple[VShort, float]] = {}

    def hear(self, now_s: float, view: VShort) -> None:
        known = self._views.get(view.pool)
        if known is not None and is_outdated(view.epoch, known[0].epoch, known[1], now_s):
            return
        if known is not None and view.epoch == known[0].epoch and view.seq < known[0].seq:
            return  # delivered out of order
        if known is None and len(self._views) >= self._config.max_views:
            del self._views[next(iter(self._views))]
        self._views[view.pool] = (view, now_s)

    def wait_s(self, now_s: float, pool: str, workers: Sequence[KnownWorker]) -> float:
        """Returns the expected queueing time of a new request in seconds: the queued requests divided by the pool's
        rate of settled ones. Without a valid view it is the least backlog of `workers`, and 0 if there are none."""
        known = self._views.get(pool)
        if known is not None and now_s - known[1] <= known[0].valid_for_s and known[0].settled_rps > 0.0:
            queued = sum(worker.queued + worker.sent_queued for worker in workers)
            return queued / known[0].settled_rps
        return min((worker.predicted_backlog_s for worker in workers), default=0.0)

    def retry_after_s(self, now_s: float, pool: str, workers: Sequence[KnownWorker]) -> float:
        """Returns in how many seconds a client should come back to a full queue: when half of what waits now is served,
        between `min_retry_s` and `max_retry_s`."""
        half_s = self.wait_s(now_s, pool, workers) / 2.0
        return min(self._config.max_retry_s, max(self._config.min_retry_s, half_s))
