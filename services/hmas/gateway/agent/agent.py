"""The gateway agent accepts or refuses requests, routes them, carries out grants and settles each exactly once."""

from dataclasses import replace
from itertools import islice
from typing import assert_never

from hmas.contracts.execution import (
    Adopt,
    Annotate,
    Declined,
    Ended,
    FirstToken,
    GatewayMessage,
    Grant,
    Load,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
)
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    KeysEnded,
    NoteGrant,
    PublishUse,
    QueuePlace,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RouteChosen,
    RunEnded,
    RunHandedOver,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    TenantsChanged,
    ToWorker,
    UseReported,
    ViewReceived,
)
from hmas.contracts.job import StageArrived, StageLinked
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import TaskType
from hmas.contracts.use import UseReport
from hmas.gateway.agent.batches import Batches, Ending
from hmas.gateway.agent.bypass import Bypass
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.agent.fitness import Fitness
from hmas.gateway.agent.ledger import Ledger, LedgerEntry, Place, RequestState
from hmas.gateway.agent.limits import TenantGate
from hmas.gateway.agent.linking import JobLinker
from hmas.gateway.agent.outlook import JobOutlook
from hmas.gateway.agent.promises import Promises
from hmas.gateway.agent.rebalancing import Rebalancer
from hmas.gateway.agent.routing import Router
from hmas.gateway.agent.stalls import Stall, StallWatch
from hmas.gateway.agent.waiting import WaitEstimator
from hmas.gateway.agent.workers import WorkerState

# Refusals by a worker after which another worker may serve the request.
_WAITING = frozenset({RequestState.HELD, RequestState.QUEUED})
MAX_COUNTED = 4096
LOSSES = frozenset({Outcome.ENGINE_ERROR, Outcome.NO_ENGINE, Outcome.DRAINING})


class GatewayAgent:
    """The agent of one gateway: `step` takes a `GatewayEvent` and returns a list of `GatewayEffect`.

    `step` raises ValueError if a request is received whose id belongs to a request that has not ended. `fitness`
    chooses among a pool's workers where the prompt is known.
    """

    def __init__(self, config: GatewayConfig, fitness: Fitness | None = None) -> None:
        self._config = config
        self._ledger = Ledger()
        self._linker = JobLinker(config.linking)
        self.outlook = JobOutlook(
            config.outlook, prefill_tokens_per_s=config.prior_prefill_tokens_per_s, tpot_s=config.prior_tpot_s
        )
        self._directory = ModelDirectory(config.max_pools)
        self._router = Router(config, fitness)
        self._tenants = TenantGate(config)
        self._classes: dict[TaskType, float] = {}  # weights of task types
        self._waits = WaitEstimator(config)
        self._promises = Promises(config)
        self._batches = Batches(config)
        self._rebalancer = Rebalancer(config, self._router, self._ledger)
        self._bypass = Bypass(config, self._router, self._ledger)
        self._stalls = StallWatch(config.stalls, self._ledger)
        self._runs = 0
        self._draining = False

    @property
    def live(self) -> int:
        """The number of requests that were accepted and are not settled yet."""
        return len(self._ledger)

    def place(self, now_s: float, request_id: str) -> QueuePlace | None:
        """Returns where a request waits, None if it does not. Of the requests before it at most MAX_COUNTED are
        counted, and only this gateway's."""
        entry = self._ledger.get(request_id)
        if entry is None or entry.state not in _WAITING:
            return None
        place = 1
        for other in islice(self._ledger.by_arrival(), MAX_COUNTED):
            if other is entry:
                break
            place += other.state in _WAITING and other.pool == entry.pool
        workers = self._router.usable(entry.pool)
        queued = max(place, sum(worker.queued + worker.sent_queued for worker in workers))
        return QueuePlace(place, queued, self._wait_s(now_s, entry.pool) * place / queued)

    def step(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        effects = self._decide(now_s, event)
        full = self._batches.full()
        return [*effects, *full] if full else effects

    def _decide(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        match event:
            case RequestReceived():
                return self._receive(now_s, event)
            case RequestAnnotated():
                return self._annotate(now_s, event)
            case FromWorker(worker, message):
                return self._from_worker(now_s, worker, message) if self._router.is_connected(worker) else []
            case FirstTokenRelayed(request_id, run):
                return self._first_token(now_s, request_id, run)
            case RunHandedOver(request_id, run):
                return self._hand_over(request_id, run)
            case RunsProgressed():
                return self._progress(now_s, event)
            case RunEnded():
                return self._run_ended(now_s, event)
            case ClientLeft(request_id):
                entry = self._ledger.get(request_id)
                return [] if entry is None else self._cancel(now_s, entry, Outcome.CANCELLED, "the client went away")
            case KeysEnded(request_ids):
                return self._end_all(now_s, request_ids)
            case HeartbeatReceived(heartbeat):
                return self._hear(now_s, heartbeat)
            case StreamChanged(worker, connected, silent_s):
                return self._connect(now_s, worker) if connected else self._disconnect(now_s, worker, now_s - silent_s)
            case GatewayTicked():
                return self._tick(now_s)
            case ViewReceived(view):
                self._waits.hear(now_s, view)
                return []
            case UseReported(report):
                self._hear_use(now_s, report)
                return []
            case TenantsChanged(limits, classes):
                self._tenants.change(now_s, limits)
                self._classes = {each.task: each.weight for each in classes}
                return []
            case GatewayDraining():
                self._draining = True
                return []
            case GatewayDrainExpired():
                return self._cancel_all(now_s)
            case _:
                assert_never(event)

    # --- taking requests ---

    def _receive(self, now_s: float, event: RequestReceived) -> list[GatewayEffect]:
        request, content = event.request, event.content
        if request.id in self._ledger:
            raise ValueError(f"request id {request.id} is in use: the gateway must make a new one per request")
        pool = self._directory.resolve(request.model)
        entry = LedgerEntry(
            request=request,
            pool=pool or request.model,
            offered=pool is not None,
            content=content,
            body_bytes=event.body_bytes,
        )
        if entry.offered:
            self._batches.offer(now_s, entry)
        refusal = self._refusal(now_s, entry)
        if refusal is not None:
            return [self._refuse(now_s, entry, refusal)]
        self._tenants.accept(now_s, request.tenant, request.prompt_tokens)
        entry.promised = bool(content) and self._promises.redeem(now_s, content)
        self._ledger.open(entry)
        linked = self._link(now_s, event)
        entry.job = linked[0].stage.job if linked else ""
        if linked and (event.job or event.job_budget_s is not None):
            entry.request = self.outlook.arrived(request, linked[0].stage, event.job_budget_s)
        return [*linked, *self._route(now_s, entry)]

    def _link(self, now_s: float, event: RequestReceived) -> list[StageLinked]:
        """Finds the job of a request, if anything is known by which it could be found."""
        request = event.request
        if not request.prefix.nodes and not event.job and event.job_budget_s is None:
            return []
        stage = StageArrived(request_id=request.id, tenant=request.tenant, chain=request.prefix, declared=event.job)
        return self._linker.step(now_s, stage)

    def _refusal(self, now_s: float, entry: LedgerEntry) -> Ending | None:
        """Returns why a new request is refused, or None if it is accepted. Checked are, in this order: shutdown, the
        model, the tenant's limits, the pool's workers and queue, and the gateway's own bounds."""
        request = entry.request
        if self._draining:
            return Ending(
                outcome=Outcome.DRAINING,
                message="this gateway is shutting down: send the request again, to another gateway",
                retry_after_s=self._config.min_retry_s,
            )
        if not entry.offered and self._directory:
            message = f"the model `{request.model}` does not exist: GET /v1/models lists those that do"
            return Ending(outcome=Outcome.UNKNOWN_MODEL, message=message)
        tenant = self._tenants.refusal(now_s, request.tenant, request.prompt_tokens)
        if tenant is not None:
            wait_s = tenant.retry_after_s
            if wait_s is None:
                wait_s = self._retry_after_s(now_s, entry.pool)
            return Ending(outcome=tenant.outcome, message=tenant.message, retry_after_s=wait_s)
        usable = self._router.usable(entry.pool)
        if not usable and self._ledger.held_count >= self._config.max_held:
            return Ending(
                outcome=Outcome.NO_ENGINE,
                message=f"no worker serves the model `{request.model}` now: try again later",
                retry_after_s=self._config.patience_s,
            )
        full = usable and not any(worker.has_room(request.prompt_tokens) for worker in usable)
        if full or len(self._ledger) >= self._config.max_requests:
            message = f"the queue of the model `{request.model}` or of the gateway is full: try again later"
        elif self._ledger.body_bytes + entry.body_bytes > self._config.max_held_bytes:
            message = "the bodies of waiting requests fill the gateway's memory (HMAS_MAX_HELD_BYTES): try again later"
        else:
            return None
        return Ending(
            outcome=Outcome.POOL_QUEUE_FULL, message=message, retry_after_s=self._retry_after_s(now_s, entry.pool)
        )

    def _given_up(self, model: str) -> Ending:
        """Returns the end of a request that no worker took within `patience_s` seconds. It may have been held before
        the first heartbeat told which models exist, so that its model is known to be wrong only now."""
        if self._directory and self._directory.resolve(model) is None:
            message = f"the model `{model}` does not exist: GET /v1/models lists those that do"
            return Ending(outcome=Outcome.UNKNOWN_MODEL, message=message)
        message = f"no worker served the model `{model}` within {self._config.patience_s:g} s: try again later"
        return Ending(outcome=Outcome.NO_ENGINE, message=message, retry_after_s=self._config.patience_s)

    def _refuse(self, now_s: float, entry: LedgerEntry, refusal: Ending) -> Refuse:
        if entry.offered:
            self._batches.settle(now_s, entry, refusal)
        wait_s = ttft_s = None
        if refusal.retry_after_s is not None:
            wait_s = self._wait_s(now_s, entry.pool)
            ttft_s = wait_s + self._router.prior_ttft_s(entry.request.prompt_tokens)
        return Refuse(
            request_id=entry.request.id,
            outcome=refusal.outcome,
            message=refusal.message,
            retry_after_s=refusal.retry_after_s,
            predicted_ttft_s=ttft_s,
            estimated_wait_s=wait_s,
        )

    def _wait_s(self, now_s: float, pool: str) -> float:
        return self._waits.wait_s(now_s, pool, self._router.usable(pool))

    def _retry_after_s(self, now_s: float, pool: str) -> float:
        return self._waits.retry_after_s(now_s, pool, self._router.usable(pool))

    # --- routing ---

    def _route(self, now_s: float, entry: LedgerEntry) -> list[GatewayEffect]:
        """Sends a request that is at no worker to one that has not refused it; to one with a full queue only if all are
        full. Without such a worker the gateway places the request itself, if it may, or holds it. One that only
        observes places it always itself."""
        if self._config.observe:
            place = self._bypass.least_outstanding(now_s, entry.pool)
            if place is not None:
                return self._place(now_s, entry, place)
            self._ledger.hold(entry, now_s)
            return []
        usable = self._router.usable(entry.pool)
        if entry.request.prefix.nodes and len(usable) > 1:
            cheapest, costs = self._router.cheapest(now_s, usable, entry.request, entry.annotation, entry.refused_by)
            if cheapest is not None:
                _, _, *columns = zip(*costs, strict=True)
                chosen = RouteChosen(entry.request.id, cheapest.name, *columns)
                return [chosen, *self._submit(now_s, entry, cheapest)]
        if entry.refused_by:
            usable = [w for w in usable if w.name not in entry.refused_by]
        roomy = [w for w in usable if w.has_room(entry.request.prompt_tokens)]
        candidates = self._router.serving(now_s, roomy or usable, entry.request, entry.annotation)
        worker = self._router.choose(now_s, candidates)
        if worker is not None:
            return self._submit(now_s, entry, worker)
        if self._bypass.allows(entry) and not self._ledger.held_count:  # those held are older
            place = self._bypass.choose(now_s, entry.pool)
            if place is not None:
                return self._place(now_s, entry, place)
        self._ledger.hold(entry, now_s)
        return []

    def _submit(self, now_s: float, entry: LedgerEntry, worker: WorkerState) -> list[GatewayEffect]:
        again = entry.submitted
        self._ledger.queue(entry, now_s, worker.name)
        self._router.send(now_s, worker, entry.request, entry.annotation)
        known = entry.request.prefix.nodes and len(self._router.usable(entry.pool)) > 1
        entry.warm = self._router.fitness.sent(worker, entry.request) if known else None
        return self._submission(entry, again=again)

    def _submission(self, entry: LedgerEntry, *, again: bool) -> list[GatewayEffect]:
        """Returns the messages that make a worker know of a waiting request."""
        request, attempt, note = entry.request, entry.attempt, entry.annotation
        submit = Submit(request=request, attempt=attempt, promised=entry.promised, again=again)
        effects: list[GatewayEffect] = [ToWorker(entry.worker, submit)]
        if note is not None:
            effects.append(ToWorker(entry.worker, Annotate(request.id, attempt, note)))
        return effects

    def _place(self, now_s: float, entry: LedgerEntry, place: Place) -> list[GatewayEffect]:
        """Runs a request that is at no worker on an engine in bypass, or where this gateway only observes."""
        self._router.placed(place[0])
        self._bypass.placed(now_s, place)
        self._ledger.bypass(entry, now_s, self._next_run(), place)
        self._stalls.started(now_s, entry)
        run, (worker, engine) = entry.run, place
        observed = self._config.observe
        start = StartRun(
            request_id=entry.request.id, run=run, worker=worker, engine=engine, grant=None, observed=observed
        )
        return [start, *self._tell(worker, _adoption(entry))] if observed else [start]

    def _withdraw(self, entry: LedgerEntry) -> list[GatewayEffect]:
        """Takes a waiting request from its worker; nothing is to be done for one that is held."""
        if entry.state is not RequestState.QUEUED:
            return []
        self._router.withdrawn(entry.worker, entry.request, entry.annotation)
        return self._tell(entry.worker, Withdraw(entry.request.id, entry.attempt))

    def _release_held(self, now_s: float) -> list[GatewayEffect]:
        """Routes the held requests for which a worker is usable, and gives those their pools that came before the
        first heartbeat told which there are."""
        effects: list[GatewayEffect] = []
        for entry in self._ledger.held():
            pool = self._directory.resolve(entry.pool)
            if pool is None:
                continue
            entry.pool = pool
            if not entry.offered:
                entry.offered = True
                self._batches.offer(now_s, entry)
            if self._router.usable(pool):
                effects += self._route(now_s, entry)
        return effects

    def _tell(self, worker: str, message: GatewayMessage) -> list[GatewayEffect]:
        return [ToWorker(worker, message)] if self._router.is_connected(worker) else []

    def _next_run(self) -> int:
        self._runs += 1
        return self._runs

    # --- what workers say ---

    def _hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> list[GatewayEffect]:
        self._directory.hear(heartbeat)
        self._router.hear(now_s, heartbeat)
        effects = self._empty(now_s, heartbeat.worker) if heartbeat.draining else []
        return effects + self._release_held(now_s) if self._ledger.held_count else effects

    def _connect(self, now_s: float, worker: str) -> list[GatewayEffect]:
        """Sends the worker a snapshot of what this gateway has there, and then what was held."""
        self._router.connect(worker)
        self._bypass.forget(worker)
        effects: list[GatewayEffect] = []
        for entry in self._ledger.queued_at(worker):
            effects += self._submission(entry, again=True)
        for entry in self._ledger.running_at(worker):
            effects.append(ToWorker(worker, _adoption(entry)))
        return [*effects, ToWorker(worker, Synced()), *self._release_held(now_s)]

    def _disconnect(self, now_s: float, worker: str, silent_since_s: float) -> list[GatewayEffect]:
        if not self._router.is_connected(worker):
            return []
        self._router.disconnect(worker, silent_since_s)
        self._stalls.lose(worker)
        return self._empty(now_s, worker)

    def _empty(self, now_s: float, worker: str) -> list[GatewayEffect]:
        """Takes all waiting requests from a worker that drains or whose stream is closed."""
        effects: list[GatewayEffect] = []
        for entry in self._ledger.queued_at(worker):
            effects += self._withdraw(entry)
            effects += self._route(now_s, entry)
        return effects

    def _from_worker(self, now_s: float, worker: str, message: Grant | Stop | Refusal | Load) -> list[GatewayEffect]:
        match message:
            case Grant():
                return self._granted(now_s, worker, message)
            case Stop(request_id, grant, reason):
                return self._stop(now_s, worker, request_id, grant, reason)
            case Refusal():
                return self._refused(now_s, worker, message)
            case Load():
                self._router.load(now_s, worker, message)
                self._stalls.report(now_s, worker, message)
                return self._empty(now_s, worker) if message.draining else []
            case _:
                assert_never(message)

    def _granted(self, now_s: float, worker: str, grant: Grant) -> list[GatewayEffect]:
        if self._config.observe:
            return [NoteGrant(worker, grant)]
        entry, new = self._ledger.get(grant.request_id), self._router.is_new_grant(worker, grant.grant)
        if entry is not None and entry.worker == worker:
            if new and entry.state is RequestState.QUEUED and entry.attempt == grant.attempt:
                if self._router.outranked(worker, grant.engine):
                    return [ToWorker(worker, _unreached(grant))]
                self._ledger.run(entry, now_s, self._next_run(), grant.engine, grant.grant)
                self._stalls.started(now_s, entry)
                self._router.granted(worker, entry.request)
                entry.relegated = grant.timeline.relegated
                start = StartRun(
                    request_id=grant.request_id, run=entry.run, worker=worker, engine=grant.engine, grant=grant
                )
                return [start, ToWorker(worker, Started(grant.request_id, grant.grant))]
            if entry.runs and entry.grant == grant.grant:
                return []
        return [ToWorker(worker, Declined(grant.request_id, grant.grant))]

    def _stop(self, now_s: float, worker: str, request_id: str, grant: int, reason: str) -> list[GatewayEffect]:
        entry = self._ledger.get(request_id)
        if entry is None or not entry.runs or entry.worker != worker or entry.grant != grant:
            return [ToWorker(worker, Declined(request_id, grant))]
        if entry.state is RequestState.STREAMING:
            return []
        effects: list[GatewayEffect] = [StopRun(request_id, entry.run)]
        ended = Ended(request_id=request_id, grant=grant, outcome=Outcome.ENGINE_ERROR, message=reason, retryable=True)
        return effects + self._give_back(now_s, entry, ended)

    def _refused(self, now_s: float, worker: str, refusal: Refusal) -> list[GatewayEffect]:
        """Sends a refused request to another worker if that may help, and settles it otherwise."""
        entry = self._ledger.get(refusal.request_id)
        waits = entry is not None and entry.state is RequestState.QUEUED
        if entry is None or not waits or entry.worker != worker or entry.attempt != refusal.attempt:
            return []
        ending = Ending(outcome=refusal.outcome, message=refusal.message, retry_after_s=refusal.retry_after_s)
        if refusal.outcome is Outcome.SLO_UNREACHABLE and entry.content and refusal.retry_after_s is not None:
            wait_s = self._promises.make(now_s, entry.content, refusal.retry_after_s)
            ending = replace(ending, retry_after_s=wait_s)
        if refusal.outcome not in LOSSES:
            return [self._settle(now_s, entry, ending)]
        entry.refused_by = (*entry.refused_by, worker)
        if not self._servable(now_s, entry):
            return [self._settle(now_s, entry, ending)]
        self._router.ended(worker, entry.request.id)
        return self._route(now_s, entry)

    def _servable(self, now_s: float, entry: LedgerEntry) -> bool:
        """Returns whether a worker that has not refused the request can serve it now or soon, or the gateway itself."""
        others = any(w.name not in entry.refused_by for w in self._router.usable(entry.pool))
        if others or self._router.hopeful(now_s, entry.pool, entry.refused_by):
            return True
        return self._may_bypass(now_s, entry)

    def _may_bypass(self, now_s: float, entry: LedgerEntry) -> bool:
        return self._bypass.allows(entry) and self._bypass.covers(now_s, entry.pool)

    def _annotate(self, now_s: float, event: RequestAnnotated) -> list[GatewayEffect]:
        """Tells the worker of the request's tags; or sends the request to another worker, if it turns out to wait at
        one that does not serve its pace class."""
        entry = self._ledger.get(event.request_id)
        if entry is None:
            return []
        annotation = replace(event.annotation, utility=self._classes.get(event.annotation.tags.task))
        entry.annotation = annotation
        if entry.state is RequestState.HELD:
            return []
        self._router.fitness.learn(entry.pool, entry.request, annotation)
        self._router.recost(entry.worker, entry.request, annotation)
        if entry.state is RequestState.QUEUED and entry.attempt < self._config.max_attempts:
            tokens, refused = entry.request.prompt_tokens, entry.refused_by
            pool = self._router.usable(entry.pool)
            usable = [w for w in pool if w.name == entry.worker or (w.name not in refused and w.has_room(tokens))]
            candidates = self._router.serving(now_s, usable, entry.request, entry.annotation) if len(usable) > 1 else ()
            if candidates and entry.worker not in (worker.name for worker in candidates):
                return [*self._withdraw(entry), *self._route(now_s, entry)]
        return self._tell(entry.worker, Annotate(event.request_id, entry.attempt, annotation))

    # --- runs ---

    def _first_token(self, now_s: float, request_id: str, run: int) -> list[GatewayEffect]:
        entry = self._ledger.get(request_id)
        if entry is None or entry.state is not RequestState.RUNNING or entry.run != run or not entry.request.stream:
            return []
        self._ledger.stream(entry, now_s)
        self._stalls.first_token(now_s, entry)
        self._tenants.started(entry.request.tenant)
        self._router.computed(entry.worker, request_id)
        if self._config.observe or not self._router.is_connected(entry.worker):
            self._bypass.answered(entry.place)
        return self._tell(entry.worker, FirstToken(request_id, entry.grant))

    def _hand_over(self, request_id: str, run: int) -> list[GatewayEffect]:
        entry = self._ledger.get(request_id)
        if entry is not None and entry.state is RequestState.RUNNING and entry.run == run:
            self._ledger.hand_over(entry)
            self._tenants.started(entry.request.tenant)
        return []

    def _progress(self, now_s: float, event: RunsProgressed) -> list[GatewayEffect]:
        by_worker: dict[str, list[tuple[str, int]]] = {}
        for request_id, output_tokens in event.output_tokens:
            entry = self._ledger.get(request_id)
            if entry is None or not entry.runs:
                continue
            if output_tokens > entry.output_tokens:
                self._stalls.progressed(now_s, entry, output_tokens)
            entry.output_tokens = output_tokens
            if self._router.is_connected(entry.worker):
                by_worker.setdefault(entry.worker, []).append((request_id, output_tokens))
            else:
                self._bypass.answered(entry.place)
        return [
            ToWorker(worker, Progress(tuple(i for i, _ in pairs), tuple(n for _, n in pairs)))
            for worker, pairs in by_worker.items()
        ]

    def _run_ended(self, now_s: float, event: RunEnded) -> list[GatewayEffect]:
        entry = self._ledger.get(event.request_id)
        if entry is None or not entry.runs or entry.run != event.run:
            return []
        retryable = event.retryable and entry.state is RequestState.RUNNING
        output_tokens = event.output_tokens or 0
        ended = Ended(
            request_id=event.request_id,
            grant=entry.grant,
            outcome=event.outcome,
            message=event.message,
            status=event.status,
            output_tokens=output_tokens,
            prompt_tokens=event.prompt_tokens,
            cached_tokens=event.cached_tokens,
            retryable=retryable,
            busy=event.busy,
            unreached=event.unreached,
        )
        if event.outcome is Outcome.FINISHED:
            self._stalls.finished(now_s, entry, output_tokens, event.cached_tokens)
            if entry.warm is not None and event.cached_tokens is not None and event.prompt_tokens:
                share = event.cached_tokens / event.prompt_tokens
                self._router.answered(entry.worker, entry.warm, share)
        place, silent = entry.place, self._config.observe or not self._router.is_connected(entry.worker)
        if silent and (retryable or event.outcome is Outcome.ENGINE_ERROR):
            self._bypass.failed(now_s, place)
        elif silent:
            self._bypass.answered(place)
        if retryable:
            return self._give_back(now_s, entry, ended)
        ending = Ending(
            outcome=event.outcome,
            message=event.message,
            output_tokens=output_tokens,
            counted=event.output_tokens is not None,
            prompt_tokens=event.prompt_tokens,
            tpot_s=event.tpot_s,
        )
        effects = [*self._tell(entry.worker, ended), self._settle(now_s, entry, ending)]
        return effects + self._refill(now_s, entry.pool) if silent and self._ledger.held_count else effects

    def _give_back(self, now_s: float, entry: LedgerEntry, ended: Ended) -> list[GatewayEffect]:
        """Lets a request whose run ended without a token wait at its worker again. If the worker's stream is closed or
        the worker drains, the request goes elsewhere; it is settled if it was placed by the gateway itself and has
        failed too often, and no worker is usable."""
        worker = entry.worker
        if self._router.is_connected(worker) and not self._config.observe:
            self._ledger.requeue(entry, now_s)
            effects: list[GatewayEffect] = [ToWorker(worker, ended)]
            return effects + self._empty(now_s, worker) if self._router.drains(worker) else effects
        entry.bypass_failures += entry.grant == 0
        told = self._tell(worker, replace(ended, retryable=False))  # it goes elsewhere
        if not self._bypass.allows(entry) and (self._config.observe or not self._router.usable(entry.pool)):
            return [*told, self._settle(now_s, entry, Ending(outcome=ended.outcome, message=ended.message))]
        self._router.ended(worker, entry.request.id)
        return [*told, *self._route(now_s, entry)]

    def _give_up(self, now_s: float, stall: Stall) -> list[GatewayEffect]:
        """Ends a run that has stalled: the request runs elsewhere, or ends if it has tokens."""
        entry = stall.entry
        retryable = entry.state is RequestState.RUNNING
        message = f"the engine {entry.engine} gave no token for {stall.silent_s:.0f} s"
        ended = Ended(
            request_id=entry.request.id,
            grant=entry.grant,
            outcome=Outcome.ENGINE_ERROR,
            message=message,
            output_tokens=entry.output_tokens,
            retryable=retryable,
            stalled=True,
        )
        if self._config.observe or not self._router.is_connected(entry.worker):
            self._bypass.failed(now_s, entry.place)
        stop = StopRun(entry.request.id, entry.run, f"{message}, of which {stall.bound_s:.0f} s were allowed")
        if retryable:
            return [stop, *self._give_back(now_s, entry, ended)]
        ending = Ending(outcome=ended.outcome, message=message, output_tokens=entry.output_tokens)
        return [stop, *self._tell(entry.worker, ended), self._settle(now_s, entry, ending)]

    def _refill(self, now_s: float, pool: str) -> list[GatewayEffect]:
        """Gives a slot in bypass that became free to the request of the pool that is held longest."""
        for entry in self._ledger.held():
            if entry.pool == pool and self._bypass.allows(entry):
                place = self._bypass.choose(now_s, pool)
                return [] if place is None else self._place(now_s, entry, place)
        return []

    def _fill(self, now_s: float) -> list[GatewayEffect]:
        """Gives free slots in bypass to the oldest requests that are held, or that wait at workers for `pull_after_s`
        and more."""
        free = {pool: place for pool in self._router.pools() if (place := self._bypass.choose(now_s, pool)) is not None}
        if not free:
            return []
        effects: list[GatewayEffect] = []
        waited_s = now_s - self._config.pull_after_s
        for entry in self._ledger.by_arrival():
            place = free.get(entry.pool)
            held = entry.state is RequestState.HELD
            waits = held or (entry.state is RequestState.QUEUED and entry.since_s <= waited_s)
            if place is None or not waits or not self._bypass.allows(entry):
                continue
            effects += self._withdraw(entry)
            effects += self._place(now_s, entry, place)
            place = self._bypass.choose(now_s, entry.pool)
            if place is not None:
                free[entry.pool] = place
                continue
            del free[entry.pool]
            if not free:
                break
        return effects

    # --- endings ---

    def _settle(self, now_s: float, entry: LedgerEntry, ending: Ending) -> Settle:
        request = entry.request
        streamed = self._ledger.settle(entry)
        if entry.worker:
            self._router.ended(entry.worker, request.id)
        prompt_tokens = request.prompt_tokens if ending.prompt_tokens is None else ending.prompt_tokens
        uncharged = ending.output_tokens + prompt_tokens - request.prompt_tokens
        self._tenants.ended(request.tenant, waiting=not streamed, tokens=uncharged)
        if request.job is not None:
            self.outlook.settled(now_s, request.id, ending.output_tokens, ending.tpot_s or 0.0)
        if entry.offered:
            self._batches.settle(now_s, entry, ending)
        return Settle(
            request_id=request.id,
            outcome=ending.outcome,
            message=ending.message,
            output_tokens=ending.output_tokens,
            retry_after_s=ending.retry_after_s,
        )

    def _cancel(self, now_s: float, entry: LedgerEntry, outcome: Outcome, message: str) -> list[GatewayEffect]:
        """Settles a request before its end, and takes it from its worker and its engine."""
        request_id, tokens = entry.request.id, entry.output_tokens
        effects: list[GatewayEffect] = []
        if entry.runs:
            effects.append(StopRun(request_id, entry.run))
            effects += self._tell(
                entry.worker,
                Ended(request_id=request_id, grant=entry.grant, outcome=outcome, message=message, output_tokens=tokens),
            )
            self._bypass.left(entry.place)
        elif entry.state is RequestState.QUEUED:
            effects += self._tell(entry.worker, Withdraw(request_id, entry.attempt))
        return [*effects, self._settle(now_s, entry, Ending(outcome=outcome, message=message, output_tokens=tokens))]

    def _end_all(self, now_s: float, request_ids: tuple[str, ...]) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for entry in filter(None, map(self._ledger.get, request_ids)):
            message = "the API key of this request was revoked or has expired: send it again with another key"
            effects += self._cancel(now_s, entry, Outcome.UNAUTHENTICATED, message)
        return effects

    def _cancel_all(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for entry in list(self._ledger.by_arrival()):
            effects += self._cancel(now_s, entry, Outcome.DRAINING, "the gateway shut down before the answer ended")
        return effects + self._batches.flush(now_s)

    # --- time ---

    def _tick(self, now_s: float) -> list[GatewayEffect]:
        effects = self._fill(now_s)
        for stall in self._stalls.tick(now_s):
            effects += self._give_up(now_s, stall)
        for entry in self._ledger.held():
            if now_s - entry.since_s >= self._config.patience_s and not self._may_bypass(now_s, entry):
                ending = self._given_up(entry.request.model)
                effects.append(self._settle(now_s, entry, ending))
        for entry in self._expired(now_s):
            limit_s = self._config.request_timeout_s
            message = f"the answer was not complete within {limit_s:g} s (HMAS_REQUEST_TIMEOUT_S)"
            effects += self._cancel(now_s, entry, Outcome.TIMED_OUT, message)
        for entry, worker in self._rebalancer.moves(now_s):
            effects += self._withdraw(entry)
            effects += self._submit(now_s, entry, worker)
        self._router.forget_silent(now_s)
        self.outlook.tick(now_s)
        return [*effects, *self._tell_use(now_s), *self._batches.due(now_s)]

    # --- other gateways ---

    def _tell_use(self, now_s: float) -> list[GatewayEffect]:
        uses = self._tenants.exchange(now_s)
        held = self._router.fitness.report(now_s)
        stages = self._linker.report(now_s)
        if uses is None and not self._promises.changed and not held and not stages:
            return []
        config = self._config
        promised, redeemed = self._promises.report(now_s)
        report = UseReport(
            gateway=config.gateway,
            incarnation=config.incarnation,
            uses=uses or (),
            promised=promised,
            redeemed=redeemed,
            held=held,
            stages=stages,
        )
        return [PublishUse(report)]

    def _hear_use(self, now_s: float, report: UseReport) -> None:
        self._tenants.hear(now_s, report)
        if report.gateway != self._config.gateway:
            self._promises.hear(now_s, report.promised, report.redeemed)
            self._router.fitness.hear(now_s, report.gateway, report.held)
            self._linker.hear(now_s, report.stages)

    def _expired(self, now_s: float) -> list[LedgerEntry]:
        """Returns the requests older than `request_timeout_s`, which come first in the order of arrival."""
        expired: list[LedgerEntry] = []
        for entry in self._ledger.by_arrival():
            if now_s - entry.request.arrival_s < self._config.request_timeout_s:
                break
            expired.append(entry)
        return expired


def _adoption(entry: LedgerEntry) -> Adopt:
    """Returns what tells a worker of a request that runs on an engine of its."""
    return Adopt(
        request=entry.request,
        attempt=entry.attempt,
        annotation=entry.annotation,
        engine=entry.engine,
        grant=entry.grant,
        output_tokens=entry.output_tokens,
        granted_s=entry.granted_s,
        first_token_s=entry.first_token_s,
    )


def _unreached(grant: Grant) -> Ended:
    """Returns the answer to a grant on an engine that another worker has taken over."""
    return Ended(
        request_id=grant.request_id,
        grant=grant.grant,
        outcome=Outcome.ENGINE_ERROR,
        message=f"another worker has taken over the engine {grant.engine}",
        retryable=True,
        unreached=True,
    )
