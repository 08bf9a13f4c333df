"""The choice of the worker for a request: the one of its pool with the least predicted backlog (DESIGN §3.4).

The predicted backlog, in seconds, is the backlog that the worker last reported (`WorkerHeartbeat.backlog_s`) plus the
predicted cost of the requests sent to it since, divided by its working engines.
"""

from collections.abc import Collection, Iterable, Sequence
from math import inf

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.execution import Load
from hmas.contracts.registry import MAX_WORKERS, WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Annotation, Request, Slo
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.fitness import Cost, Fitness, in_pace
from hmas.gateway.agent.workers import Promise, Sending, WorkerState
from hmas.laws.layout import engine_classes, pace_class, place, serving


class Router:
    """All workers that sent a heartbeat, and the choice among them. One of another wire version gets no requests."""

    def __init__(self, config: GatewayConfig, fitness: Fitness | None = None) -> None:
        self._config = config
        self._workers: dict[str, WorkerState] = {}
        self._pools: dict[str, dict[str, WorkerState]] = {}
        self._usable: dict[str, list[WorkerState]] = {}  # caches by pool, cleared when a worker may have changed
        self._silent: dict[str, list[tuple[WorkerState, EngineInfo]]] = {}
        self._claims: dict[str, tuple[str, int]] = {}  # by endpoint: the worker that has it by a lease, and its epoch
        self._grants: dict[str, int] = {}  # workers whose stream is open, with the highest number of a grant on it
        self._sent = 0
        self.fitness = fitness or Fitness(config)

    def hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        worker = self._workers.get(heartbeat.worker)
        if worker is None:
            if len(self._workers) >= MAX_WORKERS and not self._make_room():
                return
            worker = self._workers[heartbeat.worker] = WorkerState(heartbeat=heartbeat, heard_s=now_s)
            worker.silent_since_s = inf if heartbeat.worker in self._grants else now_s
        elif worker.heartbeat.pool != heartbeat.pool:
            del self._pools[worker.heartbeat.pool][worker.name]
        pool = self._pools.setdefault(heartbeat.pool, {})
        if pool.get(heartbeat.worker) is not worker or self._differs(worker, heartbeat):
            self._changed()
        pool[heartbeat.worker] = worker
        self._claim(worker.heartbeat, heartbeat)
        worker.heartbeat = heartbeat
        worker.bound()
        up = worker.engines_up
        worker.engines_up = sum(engine.up for engine in heartbeat.engines)
        worker.slots = sum(engine.max_num_seqs for engine in heartbeat.engines if engine.up)
        self.fitness.enter(worker)
        if len(heartbeat.engines) == 1 and worker.engines_up > up:
            self.fitness.restarted(worker)
        worker.classes = _classes(heartbeat)
        worker.report(now_s, heartbeat, self._config.report_lag_s)

    @staticmethod
    def _differs(worker: WorkerState, heartbeat: WorkerHeartbeat) -> bool:
        """Returns whether something changed that decides which workers and engines are usable."""
        before = worker.heartbeat
        return (
            worker.draining != heartbeat.draining
            or before.wire_version != heartbeat.wire_version
            or before.engines != heartbeat.engines
        )

    def _claim(self, before: WorkerHeartbeat, heartbeat: WorkerHeartbeat) -> None:
        """Learns which engines a worker has by leases. Where two say so of one, the higher epoch counts."""
        name = heartbeat.worker
        claimed = {engine.endpoint: engine.epoch for engine in heartbeat.engines if engine.up and engine.epoch}
        for engine in before.engines:
            claim = self._claims.get(engine.endpoint)
            if engine.endpoint not in claimed and claim is not None and claim[0] == name:
                del self._claims[engine.endpoint]
                self._changed()
        for endpoint, epoch in claimed.items():
            holder, held = self._claims.get(endpoint, ("", 0))
            if holder != name and epoch >= held:
                self._changed()
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
        self.fitness.leave(worker)
        self._claims = {each: claim for each, claim in self._claims.items() if claim[0] != worker.name}
        del self._pools[worker.heartbeat.pool][worker.name]
        self._changed()

    def load(self, now_s: float, name: str, load: Load) -> None:
        worker = self._workers.get(name)
        if worker is not None:
            if worker.draining != load.draining:
                self._changed()
            worker.report(now_s, load, self._config.report_lag_s)
            worker.see_step(now_s, load.step_s)
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
            workers = self._pools.get(pool, {}).values()
            for worker in workers:
                worker.usable = worker.name in self._grants and self._is_sound(worker)
            usable = [worker for worker in workers if worker.usable]
            if pool in self._pools:
                self._usable[pool] = usable
        return usable

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

    def cheapest(
        self,
        now_s: float,
        workers: Sequence[WorkerState],
        request: Request,
        annotation: Annotation | None,
        refused_by: Collection[str],
    ) -> tuple[WorkerState | None, list[Cost]]:
        """Returns the worker of a pool's usable `workers` where a request with a known prompt costs the fewest seconds,
        and what it costs at each that was compared. None if none of these has room and works."""
        fitness, chain, tokens = self.fitness, request.prefix, request.prompt_tokens
        slo = request.slo if annotation is None else annotation.tags.slo
        mixed = not workers[0].heartbeat.layout.cuts_s
        if not mixed:
            workers = self._of_class(workers, request, slo)
        known, owner, drawn = fitness.known(chain), fitness.owner(workers, chain), fitness.drawn(now_s, len(workers))
        if drawn < len(workers):
            workers = fitness.candidates(workers, chain, known, drawn, owner)
            if not mixed:
                workers = self._of_class(workers, request, slo)
        roomy = [w for w in workers if tokens <= (w.appraisal or w.appraise())[0]]
        if refused_by:
            roomy = [w for w in roomy if w.name not in refused_by]
        return fitness.choose(now_s, roomy, request, annotation, known, owner) if roomy else (None, [])

    def serving(
        self, now_s: float, workers: Sequence[WorkerState], request: Request, annotation: Annotation | None
    ) -> Sequence[WorkerState]:
        """Returns those of a pool's `workers` that serve the request's pace class, and of these the ones whose steps
        keep its TPOT SLO now, if there are such."""
        slo = request.slo if annotation is None else annotation.tags.slo
        return in_pace(now_s, self._of_class(workers, request, slo), request, slo)

    def _of_class(self, workers: Sequence[WorkerState], request: Request, slo: Slo) -> Sequence[WorkerState]:
        """Returns those of a pool's `workers` that serve the request's pace class: by their layout, of which a class
        without a working engine is merged with its neighbour. All of them where the layout is mixed."""
        cuts_s = workers[0].heartbeat.layout.cuts_s if len(workers) > 1 else ()
        if not cuts_s:
            return workers
        last = len(cuts_s)
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

    def computed(self, worker_name: str, request_id: str) -> None:
        """Records that a request's first token came."""
        worker = self._workers.get(worker_name)
        if worker is not None and worker.pending:
            worker.computed(request_id)

    def answered(self, worker_name: str, promise: Promise, cached_share: float) -> None:
        """Takes over which share of a prompt the engine had cached."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            self.fitness.answered(worker, promise, cached_share)

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
            worker.computed(request.id)
            cost_s = self.cost_s(request, annotation) / max(1, worker.engines_up)
            worker.withdraw(request.id, request.prompt_tokens, cost_s)

    def ended(self, worker_name: str, request_id: str) -> None:
        """Records that the worker no longer has the request."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests -= 1
            worker.computed(request_id)
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
