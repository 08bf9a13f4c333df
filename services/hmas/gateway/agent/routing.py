"""The choice of the worker for a request: the one of its pool with the least predicted backlog (DESIGN §3.4).

The predicted backlog, in seconds, is the backlog that the worker last reported (`WorkerHeartbeat.backlog_s`) plus the
predicted cost of the requests sent to it since, divided by its working engines.
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
    """A request sent to a worker that the worker's last report does not count yet.

    `at_s`: when it was sent. `tokens`: of its prompt. `cost_s`: predicted engine time over the worker's engines.
    `waiting`: its first token has not come.
    """

    at_s: float
    tokens: int
    cost_s: float
    waiting: bool = True


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """What this gateway knows of a worker; the fields from `queued` to `draining` are from the last report.

    `requests` counts this gateway's own requests there. `sendings` are those not in the last report, and `sent_*` their
    sums. `last_sent` is the number of the last request sent there, counted over all workers.
    """

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
        """Returns whether one more request of `tokens` prompt tokens fits the bounds on queued requests and queued
        tokens that the worker's heartbeat states; a bound of 0 means none."""
        bound, token_bound = self.heartbeat.max_queued, self.heartbeat.max_queued_tokens
        fits = bound <= 0 or self.queued + self.sent_queued < bound
        return fits and (token_bound <= 0 or self.queued_tokens + self.sent_tokens + tokens <= token_bound)

    def report(self, now_s: float, load: WorkerHeartbeat | LoadReported, lag_s: float) -> None:
        """Takes over the load that the worker reports. Requests sent more than `lag_s` seconds ago are counted in the
        report, so that they are no longer added to it."""
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
        """Records that the request got its first token and no longer waits in the worker's queue."""
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
        """Stops adding a request to the reported load: the report counts it now, or the worker no longer has it."""
        sending = self.sendings.pop(request_id, None)
        if sending is None:
            return
        self.sent_s -= sending.cost_s
        if sending.waiting:
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens
        if not self.sendings:
            self.sent_s = 0.0  # rounding errors must not add up


class Router:
    """All workers that sent a heartbeat, and the choice among them. One of another wire version gets no requests."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._workers: dict[str, WorkerState] = {}
        self._pools: dict[str, dict[str, WorkerState]] = {}
        self._usable: dict[str, list[WorkerState]] = {}  # cache by pool, cleared when a worker may have changed
        self._connected: dict[str, None] = {}  # not in WorkerState: a stream may connect before the first heartbeat
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
        """Returns the pool's workers that may get new requests: connected, not draining, of this wire version. The
        caller must not change the list, because it is cached."""
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
        """Returns whether a worker of the pool that is not in `lost_on` and does not drain was heard of lately, so that
        it may take a request once it is connected again."""
        return any(
            name not in lost_on and not worker.draining and now_s - worker.heard_s <= WORKER_LOST_AFTER_S
            for name, worker in self._pools.get(pool, {}).items()
        )

    def choose(self, now_s: float, workers: Sequence[WorkerState]) -> WorkerState | None:
        """Returns the worker with the least predicted backlog, or None if `workers` is empty. One without a working
        engine, or silent for more than WORKER_LOST_AFTER_S seconds, is chosen only if there is no other."""
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
            worker.last_sent,  # least recently used first; workers never used have 0 and keep their order
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
        """Records that the worker no longer has the request."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests -= 1
            worker.forget(request_id)

    def cost_s(self, request: Request, annotation: Annotation | None) -> float:
        """Returns the request's predicted engine time in seconds: T_tot of its annotation, or without one the time of
        the prior's output length, which the request's `max_tokens` caps."""
        if annotation is not None:
            return annotation.total_s
        output = self._config.prior_output_tokens
        if request.max_tokens is not None:
            output = min(output, request.max_tokens)
        return self.prior_ttft_s(request.prompt_tokens) + output * self._config.prior_tpot_s

    def prior_ttft_s(self, prompt_tokens: int) -> float:
        return prompt_tokens / self._config.prior_prefill_tokens_per_s
