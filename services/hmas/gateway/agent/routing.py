"""Which worker gets a request: the least predicted backlog of its pool (DESIGN §3.4).

Predicted backlog is what the worker last reported plus what was sent to it since, each by its predicted cost over the
worker's engines: the unit of `WorkerHeartbeat.backlog_s`.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.gateway import LoadReported
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.contracts.request import Annotation, Request
from hmas.gateway.agent.config import GatewayConfig


@dataclass(slots=True)
class Sending:
    """A request sent since the worker's last report. `waiting`: its first token has not come."""

    at_s: float
    tokens: int
    cost_s: float
    waiting: bool = True


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """A worker as this gateway knows it. `requests` counts what this gateway has at it."""

    heartbeat: WorkerHeartbeat
    heard_s: float
    engines_up: int = 0
    queued: int = 0
    queued_tokens: int = 0
    running: int = 0
    backlog_s: float = 0.0
    draining: bool = False
    requests: int = 0
    last_sent: int = 0
    sendings: dict[str, Sending] = field(default_factory=dict)
    sent_s: float = 0.0
    sent_queued: int = 0
    sent_tokens: int = 0

    @property
    def name(self) -> str:
        return self.heartbeat.worker

    @property
    def predicted_backlog_s(self) -> float:
        return self.backlog_s + self.sent_s

    def has_room(self, tokens: int) -> bool:
        """Whether its stated bounds on queued requests and queued tokens allow one more; 0 states none."""
        bound, token_bound = self.heartbeat.max_queued, self.heartbeat.max_queued_tokens
        fits = bound <= 0 or self.queued + self.sent_queued < bound
        return fits and (token_bound <= 0 or self.queued_tokens + self.sent_tokens + tokens <= token_bound)

    def report(self, now_s: float, load: WorkerHeartbeat | LoadReported, lag_s: float) -> None:
        """A report contains all that was sent more than `lag_s` ago."""
        self.heard_s = now_s
        self.queued, self.queued_tokens, self.running = load.queued, load.queued_tokens, load.running
        self.backlog_s, self.draining = load.backlog_s, load.draining
        for request_id in [i for i, sending in self.sendings.items() if sending.at_s <= now_s - lag_s]:
            self.forget(request_id)

    def remember(self, request_id: str, sending: Sending) -> None:
        self.forget(request_id)
        self.sendings[request_id] = sending
        self.sent_s += sending.cost_s
        self.sent_queued += sending.waiting
        self.sent_tokens += sending.tokens if sending.waiting else 0

    def started(self, request_id: str) -> None:
        """The request left the worker's queue."""
        sending = self.sendings.get(request_id)
        if sending is not None and sending.waiting:
            sending.waiting = False
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens

    def recost(self, request_id: str, cost_s: float) -> None:
        sending = self.sendings.get(request_id)
        if sending is not None:
            self.sent_s += cost_s - sending.cost_s
            sending.cost_s = cost_s

    def forget(self, request_id: str) -> None:
        """What was sent is in a report now, or no longer there."""
        sending = self.sendings.pop(request_id, None)
        if sending is None:
            return
        self.sent_s -= sending.cost_s
        if sending.waiting:
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens
        if not self.sendings:
            self.sent_s = 0.0  # no rounding is carried on


class Router:
    """Every worker heard of. Workers of another wire version get nothing."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._workers: dict[str, WorkerState] = {}
        self._pools: dict[str, dict[str, WorkerState]] = {}
        self._usable: dict[str, list[WorkerState]] = {}  # by pool; rebuilt when a worker's standing changes
        self._connected: dict[str, None] = {}  # a stream may stand before the heartbeat is here
        self._sent = 0

    def hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        worker = self._workers.get(heartbeat.worker)
        if worker is None:
            worker = self._workers[heartbeat.worker] = WorkerState(heartbeat=heartbeat, heard_s=now_s)
        elif worker.heartbeat.pool != heartbeat.pool:
            del self._pools[worker.heartbeat.pool][worker.name]
        self._pools.setdefault(heartbeat.pool, {})[heartbeat.worker] = worker
        worker.heartbeat = heartbeat
        worker.engines_up = sum(engine.up for engine in heartbeat.engines)
        worker.report(now_s, heartbeat, self._config.report_lag_s)
        self._usable.clear()

    def load(self, now_s: float, load: LoadReported) -> None:
        worker = self._workers.get(load.worker)
        if worker is not None:
            if worker.draining != load.draining:
                self._usable.clear()
            worker.report(now_s, load, self._config.report_lag_s)

    def connect(self, worker: str, connected: bool) -> None:
        self._usable.clear()
        if connected:
            self._connected[worker] = None
        else:
            self._connected.pop(worker, None)

    def forget_silent(self, now_s: float) -> None:
        for worker in list(self._workers.values()):
            silent = worker.name not in self._connected and now_s - worker.heard_s > self._config.forget_worker_s
            if silent and not worker.requests:
                del self._workers[worker.name]
                del self._pools[worker.heartbeat.pool][worker.name]
                self._usable.clear()
        self._pools = {pool: workers for pool, workers in self._pools.items() if workers}

    def get(self, worker: str) -> WorkerState | None:
        return self._workers.get(worker)

    def pools(self) -> Iterable[str]:
        return self._pools

    def usable(self, pool: str) -> list[WorkerState]:
        """Workers that may get new work now. Not to be changed."""
        usable = self._usable.get(pool)
        if usable is None:
            usable = [worker for worker in self._pools.get(pool, {}).values() if self._is_usable(worker)]
            if pool in self._pools:
                self._usable[pool] = usable
        return usable

    def _is_usable(self, worker: WorkerState) -> bool:
        version = worker.heartbeat.wire_version
        return worker.name in self._connected and not worker.draining and version == WIRE_VERSION

    def hopeful(self, now_s: float, pool: str, lost_on: Collection[str]) -> bool:
        """Whether another worker of the pool, merely unconnected for now, may yet take a request."""
        return any(
            name not in lost_on and not worker.draining and now_s - worker.heard_s <= WORKER_LOST_AFTER_S
            for name, worker in self._pools.get(pool, {}).items()
        )

    def choose(self, now_s: float, workers: Sequence[WorkerState]) -> WorkerState | None:
        """The least predicted backlog; workers with no engine up, or silent for long, only if there is no other."""
        if len(workers) == 1:
            return workers[0]
        return min(workers, key=lambda worker: self._rank(now_s, worker), default=None)

    def _rank(self, now_s: float, worker: WorkerState) -> tuple[bool, bool, float, int, int]:
        silent = now_s - worker.heard_s > WORKER_LOST_AFTER_S
        return (
            worker.engines_up == 0,
            silent,
            worker.predicted_backlog_s,
            worker.requests,
            worker.last_sent,  # distinct but for workers never used, which keep the order they were heard in
        )

    def send(self, now_s: float, worker: WorkerState, request: Request, annotation: Annotation | None) -> None:
        self._sent += 1
        worker.last_sent = self._sent
        worker.requests += 1
        cost_s = self.cost_s(request, annotation) / max(1, worker.engines_up)
        worker.remember(request.id, Sending(now_s, request.prompt_tokens, cost_s))

    def recost(self, worker_name: str, request: Request, annotation: Annotation) -> None:
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.recost(request.id, annotation.total_s / max(1, worker.engines_up))

    def started(self, worker_name: str, request_id: str) -> None:
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.started(request_id)

    def ended(self, worker_name: str, request_id: str) -> None:
        """The worker no longer has the request."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests -= 1
            worker.forget(request_id)

    def cost_s(self, request: Request, annotation: Annotation | None) -> float:
        """Predicted engine time: T_tot of the annotation, else the prior's; `max_tokens` caps the prior's length."""
        if annotation is not None:
            return annotation.total_s
        output = self._config.prior_output_tokens
        if request.max_tokens is not None:
            output = min(output, request.max_tokens)
        return self.prior_ttft_s(request.prompt_tokens) + output * self._config.prior_tpot_s

    def prior_ttft_s(self, prompt_tokens: int) -> float:
        return prompt_tokens / self._config.prior_prefill_tokens_per_s
