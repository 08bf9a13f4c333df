"""Records what the worker would grant while gateways only observe: in metrics, in heartbeats, and at the gateways for
`hmas why`."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

import structlog
from prometheus_client import Histogram

from hmas.contracts.execution import WorkerMessage
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.worker import WorkerEffect, WorkerEvent
from hmas.runtime.logs import LogRateLimit
from hmas.worker.agent.shadow import ShadowWorker

log = structlog.get_logger()
RECENT = 256  # grants over which the mean wait is taken
WOULD_WAIT = Histogram(
    "hmas_worker_would_wait_seconds",
    "Seconds that requests would have waited for a grant, while gateways only observe",
    buckets=(0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0),
)

Observe = Callable[[float, WorkerEvent, list[WorkerEffect]], None]


class GrantObserver:
    """Feeds `shadow` with what the worker's agent hears; `send` tells a gateway of a grant."""

    def __init__(self, shadow: ShadowWorker, send: Callable[[str, WorkerMessage], None]) -> None:
        self._shadow = shadow
        self.queue_view = self._shadow.queue_view
        self._send = send
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._grants = 0
        self._sparingly = LogRateLimit()

    def beside(self, observe: Observe) -> Observe:
        """Returns an observer of the agent's steps that also calls `observe`."""

        def both(now_s: float, event: WorkerEvent, effects: list[WorkerEffect]) -> None:
            observe(now_s, event, effects)
            self._hear(now_s, event)

        return both

    def tell(self, heartbeat: WorkerHeartbeat) -> WorkerHeartbeat:
        wait_s = sum(self._recent) / len(self._recent) if self._recent else 0.0
        return replace(heartbeat, observes=True, observed_grants=self._grants, observed_wait_s=wait_s)

    def _hear(self, now_s: float, event: WorkerEvent) -> None:
        try:
            would = self._shadow.step(now_s, event)
        except Exception as error:  # what only observes must not disturb what serves
            self._sparingly.warn("observation_failed", reason=repr(error))
            return
        for each in would:
            self._grants += 1
            self._recent.append(each.waited_s)
            WOULD_WAIT.observe(each.waited_s)
            self._send(each.gateway, each.grant)
