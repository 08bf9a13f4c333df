"""How long a new request would wait, from the QoS view or, without one, from the workers' backlogs."""

from collections.abc import Sequence

from hmas.contracts.views import VShort
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.routing import WorkerState


class WaitEstimator:
    """The last V_short of each pool with the time it came."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._views: dict[str, tuple[VShort, float]] = {}

    def hear(self, now_s: float, view: VShort) -> None:
        known = self._views.get(view.pool)
        if known is not None and (view.epoch, view.seq) < (known[0].epoch, known[0].seq):
            return  # an older writer, or out of order
        if known is None and len(self._views) >= self._config.max_views:
            del self._views[next(iter(self._views))]
        self._views[view.pool] = (view, now_s)

    def wait_s(self, now_s: float, pool: str, workers: Sequence[WorkerState]) -> float:
        """Expected queueing time in the pool: queued over the rate of service, else the least backlog; 0 if empty."""
        known = self._views.get(pool)
        if known is not None and now_s - known[1] <= known[0].valid_for_s and known[0].settled_rps > 0.0:
            queued = sum(worker.queued + worker.sent_queued for worker in workers)
            return queued / known[0].settled_rps
        return min((worker.predicted_backlog_s for worker in workers), default=0.0)

    def retry_after_s(self, now_s: float, pool: str, workers: Sequence[WorkerState]) -> float:
        """When to come back to a full queue: once half of what waits now is served, within bounds."""
        half_s = self.wait_s(now_s, pool, workers) / 2.0
        return min(self._config.max_retry_s, max(self._config.min_retry_s, half_s))
