"""What the gateway knows of all workers, by which it chooses one for a request (`choice.py`, DESIGN §3.4).

The predicted backlog, in seconds, is the backlog that the worker last reported (`WorkerHeartbeat.backlog_s`) plus the
predicted cost of the requests sent to it since, divided by its working engines.
"""

from collections.abc import Collection, Iterable
from math import inf

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.execution import Load
from hmas.contracts.registry import MAX_HEARD_WORKERS, WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Annotation, Request
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.claims import EngineClaims
from hmas.gateway.agent.pools.workers import ExpectedHit, KnownWorker, Sending
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.laws.kind_costs import cost_among, kinds_of
from hmas.laws.layout import engine_classes, engine_path


class Router:
    """All workers that sent a heartbeat. One of another wire version gets no requests."""

    def __init__(self, config: GatewayConfig, chooser: RouteChooser | None = None) -> None:
        self._config = config
        self._workers: dict[str, KnownWorker] = {}
        self._pools: dict[str, dict[str, KnownWorker]] = {}
        self._usable: dict[str, list[KnownWorker]] = {}  # caches by pool, cleared when a worker may have changed
        self._silent: dict[str, list[tuple[KnownWorker, EngineInfo]]] = {}
        self._claims = EngineClaims()
        self._grants: dict[str, int] = {}  # workers whose stream is open, with the highest number of a grant on it
        self._sent = 0
        self.chooser = chooser or RouteChooser(config)

    def hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        worker = self._workers.get(heartbeat.worker)
        if worker is None:
            if len(self._workers) >= MAX_HEARD_WORKERS and not self._make_room():
                return
            worker = self._workers[heartbeat.worker] = KnownWorker(heartbeat=heartbeat, heard_s=now_s)
            worker.silent_since_s = inf if heartbeat.worker in self._grants else now_s
        elif worker.heartbeat.pool != heartbeat.pool:
            del self._pools[worker.heartbeat.pool][worker.name]
        pool = self._pools.setdefault(heartbeat.pool, {})
        if pool.get(heartbeat.worker) is not worker or _differs(worker, heartbeat):
            self._changed()
        pool[heartbeat.worker] = worker
        if self._claims.hear(worker.heartbeat.engines, heartbeat):
            self._changed()
        before, worker.heartbeat = worker.heartbeat.engines, heartbeat
        worker.bound()
        up = worker.engines_up
        worker.engines_up = sum(engine.serves for engine in heartbeat.engines)
        worker.asleep = not worker.engines_up and any(engine.up for engine in heartbeat.engines)
        worker.kinds = kinds_of([e.engine_kind for e in heartbeat.engines if e.up])
        worker.slots = sum(engine.max_num_seqs for engine in heartbeat.engines if engine.serves)
        self.chooser.enter(worker)
        if len(heartbeat.engines) == 1 and _is_emptied(before, heartbeat.engines[0], rose=worker.engines_up > up):
            self.chooser.emptied(worker)
        worker.classes = _classes(heartbeat)
        worker.report(now_s, heartbeat, self._config.router.report_lag_s)

    def outranked(self, name: str, engine: str) -> bool:
        """Returns whether another worker has an engine by now that this worker had by a lease, or nobody has."""
        worker = self._workers.get(name)
        engines = worker.heartbeat.engines if worker is not None else ()
        return any(each.engine == engine and self._claims.has_lost(name, each) for each in engines)

    def _make_room(self) -> bool:
        """Forgets the worker that was not heard of for the longest time among those that are not connected and have no
        request; returns whether there was one."""
        spare = [w for w in self._workers.values() if w.name not in self._grants and not w.requests]
        if spare:
            self._forget(min(spare, key=lambda worker: worker.heard_s))
        return bool(spare)

    def _forget(self, worker: KnownWorker) -> None:
        del self._workers[worker.name]
        self.chooser.leave(worker)
        self._claims.forget(worker.name)
        del self._pools[worker.heartbeat.pool][worker.name]
        self._changed()

    def load(self, now_s: float, name: str, load: Load) -> None:
        worker = self._workers.get(name)
        if worker is not None:
            if worker.draining != load.draining:
                self._changed()
            worker.report(now_s, load, self._config.router.report_lag_s)
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
            spare = self._config.fail_open.enabled and not worker.draining
            kept_s = self._config.router.forget_bypass_s if spare else self._config.router.forget_s
            if worker.name not in self._grants and now_s - worker.heard_s > kept_s and not worker.requests:
                self._forget(worker)
        self._pools = {pool: workers for pool, workers in self._pools.items() if workers}

    def _changed(self) -> None:
        self._usable.clear()
        self._silent.clear()

    def pools(self) -> Iterable[str]:
        return self._pools

    def usable(self, pool: str) -> list[KnownWorker]:
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

    def _is_sound(self, worker: KnownWorker) -> bool:
        return not worker.draining and worker.heartbeat.wire_version == WIRE_VERSION

    def silent(self, pool: str) -> list[tuple[KnownWorker, EngineInfo]]:
        """Returns the pool's working engines of workers whose streams are not open and that do not drain. An engine
        that is asleep or needs a partner, whose endpoint belongs to a connected worker now, or whose lease another
        worker has taken, is not among them. The caller must not change the list."""
        silent = self._silent.get(pool)
        if silent is None:
            workers = self._pools.get(pool, {}).values()
            served = {e.endpoint for w in workers if w.name in self._grants for e in w.heartbeat.engines if e.endpoint}
            silent = [
                (worker, engine)
                for worker in workers
                if worker.name not in self._grants and self._is_sound(worker)
                for engine in worker.heartbeat.engines
                if _serves_alone(engine)
                and engine.endpoint not in served
                and not self._claims.has_lost(worker.name, engine)
            ]
            if pool in self._pools:
                self._silent[pool] = silent
        return silent

    def working(self, pool: str) -> list[tuple[KnownWorker, EngineInfo]]:
        """Returns the pool's working engines that need no partner, whether or not their workers' streams are open."""
        connected = [
            (worker, engine)
            for worker in self._pools.get(pool, {}).values()
            if worker.name in self._grants and worker.heartbeat.wire_version == WIRE_VERSION
            for engine in worker.heartbeat.engines
            if _serves_alone(engine) and not self._claims.has_lost(worker.name, engine)
        ]
        return connected + self.silent(pool)

    def hopeful(self, now_s: float, pool: str, refused_by: Collection[str]) -> bool:
        """Returns whether a worker of the pool that is not in `refused_by` and does not drain was heard of lately, so
        that it may take a request once it is connected again."""
        return any(
            name not in refused_by and not worker.draining and now_s - worker.heard_s <= WORKER_LOST_AFTER_S
            for name, worker in self._pools.get(pool, {}).items()
        )

    def send(self, now_s: float, worker: KnownWorker, request: Request, annotation: Annotation | None) -> None:
        self._sent += 1
        worker.last_sent = self._sent
        worker.requests += 1
        cost_s = self.cost_s(worker, request, annotation) / max(1, worker.engines_up)
        worker.remember(request.id, Sending(now_s, request.prompt_tokens, cost_s))

    def computed(self, worker_name: str, request_id: str) -> None:
        """Records that a request's first token came."""
        worker = self._workers.get(worker_name)
        if worker is not None and worker.pending:
            worker.computed(request_id)

    def answered(self, worker_name: str, expected: ExpectedHit, cached_share: float) -> None:
        """Takes over which share of a prompt the engine had cached."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            self.chooser.answered(worker, expected, cached_share)

    def recost(self, worker_name: str, request: Request, annotation: Annotation) -> None:
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.recost(request.id, self.cost_s(worker, request, annotation) / max(1, worker.engines_up))

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
            cost_s = self.cost_s(worker, request, annotation) / max(1, worker.engines_up)
            worker.withdraw(request.id, request.prompt_tokens, cost_s)

    def ended(self, worker_name: str, request_id: str) -> None:
        """Records that the worker no longer has the request."""
        worker = self._workers.get(worker_name)
        if worker is not None:
            worker.requests -= 1
            worker.computed(request_id)
            worker.forget(request_id)

    def cost_s(self, worker: KnownWorker, request: Request, annotation: Annotation | None) -> float:
        """Returns the request's predicted engine time in seconds at a worker: T_tot of its annotation, or without one
        the time of the prior's output length, which the request's `max_tokens` caps."""
        if annotation is not None:
            return cost_among(annotation.costs, worker.kinds).total_s(annotation.tags.output_tokens)
        output = self._config.prior.output_tokens
        if request.max_tokens is not None:
            output = min(output, request.max_tokens)
        return self.prior_ttft_s(request.prompt_tokens) + output * self._config.prior.tpot_s

    def prior_ttft_s(self, prompt_tokens: int) -> float:
        return prompt_tokens / self._config.prior.prefill_tokens_per_s


def _differs(worker: KnownWorker, heartbeat: WorkerHeartbeat) -> bool:
    """Returns whether something changed that decides which workers and engines are usable."""
    before = worker.heartbeat
    return (
        worker.draining != heartbeat.draining
        or before.wire_version != heartbeat.wire_version
        or before.engines != heartbeat.engines
    )


def _classes(heartbeat: WorkerHeartbeat) -> frozenset[int]:
    layout = heartbeat.layout
    if not layout.cuts_s:
        return frozenset()
    paths = (engine_path(heartbeat.worker, engine.engine) for engine in heartbeat.engines if engine.serves)
    return frozenset(engine_classes(layout, paths).values())


def _is_emptied(before: tuple[EngineInfo, ...], engine: EngineInfo, *, rose: bool) -> bool:
    """Returns whether a worker's only engine has lost its prefix cache: it came up, as `rose` says, and did not merely
    wake; or it fell asleep at a level that drops what it holds."""
    slept = before[0].sleep_level if len(before) == 1 else None
    if engine.sleep_level:
        return engine.sleep_level != slept
    return rose and slept is None


def _serves_alone(engine: EngineInfo) -> bool:
    """Returns whether an engine is up and awake and a gateway can send requests to it by itself."""
    return engine.serves and not engine.needs_partner
