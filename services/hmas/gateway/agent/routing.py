"""The choice of the worker for a request: the one of its pool with the least predicted backlog (DESIGN §3.4).

The predicted backlog, in seconds, is the backlog that the worker last reported (`WorkerHeartbeat.backlog_s`) plus the
predicted cost of the requests sent to it since, divided by its working engines.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.execution import Load
from hmas.contracts.registry import MAX_WORKERS, WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Annotation, Request
from hmas.gateway.agent.config import GatewayConfig
from hmas.laws.layout import engine_classes, pace_class, place, serving


@dataclass(slots=True)
class Sending:
    """A request sent to a worker that the worker's last report does not count yet.

    `at_s`: when it was sent. `tokens`: of its prompt. `cost_s`: predicted engine time over the worker's engines.
    `waiting`: it was not granted.
    """

    at_s: float
    tokens: int
    cost_s: float
    waiting: bool = True


@dataclass(slots=True, kw_only=True)
class WorkerState:
    """What this gateway knows of a worker; the fields from `queued` to `draining` are from the last report.

    `classes` are the pace classes of its engines that are up, none where the layout is mixed.
    `requests` counts this gateway's own requests there. `sendings` are those not in the last report, and `sent_*` their
    sums. `last_sent` is the number of the last request sent there, counted over all workers. `shares`: by engine, how
    many requests this gateway may place there while the worker is silent, which it is since `silent_since_s`; inf while
    its stream is open.
    """

    heartbeat: WorkerHeartbeat
    heard_s: float
    engines_up: int = 0
    classes: frozenset[int] = frozenset()
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
    silent_since_s: float = inf
    shares: dict[str, int] = field(default_factory=dict)

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

    def report(self, now_s: float, load: WorkerHeartbeat | Load, lag_s: float) -> None:
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

    def dequeue(self, request_id: str, tokens: int) -> None:
        """Records that the request no longer waits in the worker's queue, whether the last report counts it or not."""
        sending = self.sendings.get(request_id)
        if sending is None:
            self.queued, self.queued_tokens = max(0, self.queued - 1), max(0, self.queued_tokens - tokens)
        elif sending.waiting:
            sending.waiting = False
            self.sent_queued -= 1
            self.sent_tokens -= sending.tokens

    def withdraw(self, request_id: str, tokens: int, cost_s: float) -> None:
        """Records that a waiting request was taken from the worker."""
        self.dequeue(request_id, tokens)
        if request_id in self.sendings:
            self.forget(request_id)
        else:
            self.backlog_s = max(0.0, self.backlog_s - cost_s)

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
        self._usable: dict[str, list[WorkerState]] = {}  # caches by pool, cleared when a worker may have changed
        self._silent: dict[str, list[tuple[WorkerState, EngineInfo]]] = {}
        self._claims: dict[str, tuple[str, int]] = {}  # by endpoint: the worker that has it by a lease, and its epoch
        self._grants: dict[str, int] = {}  # workers whose stream is open, with the highest number of a grant on it
        self._sent = 0

    def hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        worker = self._workers.get(heartbeat.worker)
        if worker is None:
            if len(self._workers) >= MAX_WORKERS and not self._make_room():
                return
            worker = self._workers[heartbeat.worker] = WorkerState(heartbeat=heartbeat, heard_s=now_s)
            worker.silent_since_s = inf if heartbeat.worker in self._grants else now_s
        elif worker.heartbeat.pool != heartbeat.pool:
            del self._pools[worker.heartbeat.pool][worker.name]
        self._pools.setdefault(heartbeat.pool, {})[heartbeat.worker] = worker
        self._claim(worker.heartbeat, heartbeat)
        worker.heartbeat = heartbeat
        worker.engines_up = sum(engine.up for engine in heartbeat.engines)
        worker.classes = _classes(heartbeat)
        worker.report(now_s, heartbeat, self._config.report_lag_s)
        self._changed()

    def _claim(self, before: WorkerHeartbeat, heartbeat: WorkerHeartbeat) -> None:
        """Learns which engines a worker has by leases. Where two say so of one, the higher epoch counts."""
        name = heartbeat.worker
        claimed = {engine.endpoint: engine.epoch for engine in heartbeat.engines if engine.up and engine.epoch}
        for engine in before.engines:
            if engine.endpoint not in claimed and self._claims.get(engine.endpoint, ("", 0))[0] == name:
                del self._claims[engine.endpoint]
        for endpoint, epoch in claimed.items():
            holder, held = self._claims.get(endpoint, (name, 0))
            if holder == name or epoch >= held:
                self._claims[endpoint] = name, epoch

    def outranked(self, name: str, engine: str) -> bool:
        """Returns whether another worker has an engine by now that this worker had by a lease, or nobody has."""
        worker = self._workers.get(name)
        told = worker.heartbeat.engines if worker is not None else ()
        return any(each.engine == engine and self._is_claimed_by_another(name, each) for each in told)

    def _is_claimed_by_another(self, name: str, engine: EngineInfo) -> bool:
        return bool(engine.epoch) and self._claims.get(engine.endpoint, ("", 0))[0] != name

    def _make_room(self) -> bool:
        """Forgets the worker that was not heard of for the longest time among those that are not connected and have no
        request; returns whether there was one."""
        spare = [w for w in self._workers.values() if w.name not in self._grants and not w.requests]
        if spare:
            self._forget(min(spare, key=lambda worker: worker.heard_s))
        return bool(spare)

    def _forget(self, worker: WorkerState) -> None:
        del self._workers[worker.name]
        self._claims = {each: claim for each, claim in self._claims.items() if claim[0] != worker.name}
        del self._pools[worker.heartbeat.pool][worker.name]
        self._changed()

    def load(self, now_s: float, name: str, load: Load) -> None:
        worker = self._workers.get(name)
        if worker is not None:
            if worker.draining != load.draining:
                self._changed()
            worker.report(now_s, load, self._config.report_lag_s)
            worker.shares = {share.engine: share.slots for share in load.shares} or worker.shares

    def connect(self, name: str) -> None:
        """Records that the stream to a worker was opened."""
        self._grants[name] = 0
        if name in self._workers:
            self._workers[name].silent_since_s = inf
        self._changed()

    def disconnect(self, name: str, silent_since_s: float) -> None:
        del self._grants[name]
        if name in self._workers:
            self._workers[name].silent_since_s = silent_since_s
        self._changed()

    def is_connected(self, name: str) -> bool:
        return name in self._grants

    def drains(self, name: str) -> bool:
        worker = self._workers.get(name)
        return worker is not None and worker.draining

    def is_new_grant(self, name: str, grant: int) -> bool:
        """Returns whether this grant did not come before on the worker's stream, and counts it as come. A worker's
        numbers rise."""
        if grant <= self._grants[name]:
            return False
        self._grants[name] = grant
        return True

    def forget_silent(self, now_s: float) -> None:
        for worker in list(self._workers.values()):
            spare = self._config.fail_open and not worker.draining
            kept_s = self._config.forget_bypass_s if spare else self._config.forget_worker_s
            if worker.name not in self._grants and now_s - worker.heard_s > kept_s and not worker.requests:
                self._forget(worker)
        self._pools = {pool: workers for pool, workers in self._pools.items() if workers}

    def _changed(self) -> None:
        self._usable.clear()
        self._silent.clear()

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
        return worker.name in self._grants and self._is_sound(worker)

    def _is_sound(self, worker: WorkerState) -> bool:
        return not worker.draining and worker.heartbeat.wire_version == WIRE_VERSION

    def silent(self, pool: str) -> list[tuple[WorkerState, EngineInfo]]:
        """Returns the pool's working engines of workers whose streams are not open and that do not drain. An engine
        whose endpoint belongs to a connected worker now, or whose lease another worker has taken, is not among them.
        The caller must not change the list."""
        silent = self._silent.get(pool)
        if silent is None:
            workers = self._pools.get(pool, {}).values()
            served = {e.endpoint for w in workers if w.name in self._grants for e in w.heartbeat.engines if e.endpoint}
            silent = [
                (worker, engine)
                for worker in workers
                if worker.name not in self._grants and self._is_sound(worker)
                for engine in worker.heartbeat.engines
                if engine.up and engine.endpoint not in served and not self._is_claimed_by_another(worker.name, engine)
            ]
            if pool in self._pools:
                self._silent[pool] = silent
        return silent

    def working(self, pool: str) -> list[tuple[WorkerState, EngineInfo]]:
        """Returns the pool's working engines, whether or not their workers' streams are open."""
        connected = [
            (worker, engine)
            for worker in self._pools.get(pool, {}).values()
            if worker.name in self._grants and worker.heartbeat.wire_version == WIRE_VERSION
            for engine in worker.heartbeat.engines
            if engine.up and not self._is_claimed_by_another(worker.name, engine)
        ]
        return connected + self.silent(pool)

    def hopeful(self, now_s: float, pool: str, refused_by: Collection[str]) -> bool:
        """Returns whether a worker of the pool that is not in `refused_by` and does not drain was heard of lately, so
        that it may take a request once it is connected again."""
        return any(
            name not in refused_by and not worker.draining and now_s - worker.heard_s <= WORKER_LOST_AFTER_S
            for name, worker in self._pools.get(pool, {}).items()
        )

    def choose(self, now_s: float, workers: Sequence[WorkerState]) -> WorkerState | None:
        """Returns the worker with the least predicted backlog, or None if `workers` is empty. One without a working
        engine, or silent for more than WORKER_LOST_AFTER_S seconds, is chosen only if there is no other."""
        if len(workers) == 1:
            return workers[0]
        return min(workers, key=lambda worker: self._rank(now_s, worker), default=None)

    def serving(
        self, workers: Sequence[WorkerState], request: Request, annotation: Annotation | None
    ) -> Sequence[WorkerState]:
        """Returns those of a pool's `workers` that serve the request's pace class: by their layout, of which a class
        without a working engine is merged with its neighbour. All of them where the layout is mixed."""
        cuts_s = workers[0].heartbeat.layout.cuts_s if len(workers) > 1 else ()
        if not cuts_s:
            return workers
        last = len(cuts_s)
        slo = request.slo if annotation is None else annotation.tags.slo
        wanted = last if request.prefill_only else pace_class(cuts_s, slo.tpot_s)
        lane = serving(last + 1, frozenset().union(*(worker.classes for worker in workers)))[wanted]
        return [worker for worker in workers if lane in worker.classes] or workers

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

    def granted(self, worker_name: str, request: Request) -> None:
        """Records that the worker granted the request, which no longer waits there."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.dequeue(request.id, request.prompt_tokens)

    def placed(self, worker_name: str) -> None:
        """Records that the gateway itself placed a request on an engine of the worker."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests += 1

    def withdrawn(self, worker_name: str, request: Request, annotation: Annotation | None) -> None:
        """Records that a waiting request was taken from the worker."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests -= 1
            cost_s = self.cost_s(request, annotation) / max(1, worker.engines_up)
            worker.withdraw(request.id, request.prompt_tokens, cost_s)

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


def _classes(heartbeat: WorkerHeartbeat) -> frozenset[int]:
    layout = heartbeat.layout
    if not layout.cuts_s:
        return frozenset()
    places = (place(heartbeat.worker, engine.engine) for engine in heartbeat.engines if engine.up)
    return frozenset(engine_classes(layout, places).values())
