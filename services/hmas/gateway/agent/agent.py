"""The gateway agent accepts or refuses requests, routes them, resends lost ones and settles each exactly once."""

from dataclasses import replace
from typing import assert_never

from hmas.contracts.gateway import (
    AttemptConcluded,
    AttemptHandedBack,
    ClientLeft,
    FirstTokenRelayed,
    GatewayDrainExpired,
    GatewayDraining,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    LoadReported,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    SendAnnotate,
    SendCancel,
    SendRecall,
    SendSubmit,
    Settle,
    StreamChanged,
    TenantsChanged,
    ViewReceived,
    WorkerVanished,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.gateway.agent.batches import Batches, Ending
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.agent.ledger import Ledger, LedgerEntry, RequestState
from hmas.gateway.agent.limits import TenantGate
from hmas.gateway.agent.promises import Promises
from hmas.gateway.agent.rebalancing import Rebalancer
from hmas.gateway.agent.routing import Router
from hmas.gateway.agent.waiting import WaitEstimator

# Outcomes of an attempt after which another worker may serve the request. CANCELLED: the worker dropped all requests of
# this gateway because it had lost its stream.
LOSSES = frozenset({Outcome.WORKER_LOST, Outcome.ENGINE_ERROR, Outcome.NO_ENGINE, Outcome.DRAINING, Outcome.CANCELLED})


class GatewayAgent:
    """The agent of one gateway: `step` takes a `GatewayEvent` and returns a list of `GatewayEffect`.

    `step` raises ValueError if a request is received whose id belongs to a request that has not ended.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._ledger = Ledger()
        self._directory = ModelDirectory(config.max_pools)
        self._router = Router(config)
        self._tenants = TenantGate(config)
        self._waits = WaitEstimator(config)
        self._promises = Promises(config)
        self._batches = Batches(config)
        self._rebalancer = Rebalancer(config, self._router, self._ledger)
        self._draining = False

    @property
    def live(self) -> int:
        """The number of requests that were accepted and are not settled yet."""
        return len(self._ledger)

    def step(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        effects = self._decide(now_s, event)
        full = self._batches.full()
        return [*effects, *full] if full else effects

    def _decide(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        match event:
            case RequestReceived():
                return self._receive(now_s, event)
            case RequestAnnotated():
                return self._annotate(event)
            case FirstTokenRelayed(request_id, attempt):
                return self._first_token(now_s, request_id, attempt)
            case AttemptConcluded():
                return self._conclude(now_s, event)
            case AttemptHandedBack(request_id, attempt):
                return self._handed_back(now_s, request_id, attempt)
            case ClientLeft(request_id):
                entry = self._ledger.get(request_id)
                return [] if entry is None else self._cancel(now_s, entry, Outcome.CANCELLED, "the client went away")
            case HeartbeatReceived(heartbeat):
                return self._hear(now_s, heartbeat)
            case LoadReported():
                self._router.load(now_s, event)
                return []
            case StreamChanged(worker, connected):
                self._router.connect(worker, connected)
                return self._release_held(now_s) if connected else []
            case WorkerVanished(worker, reason):
                return self._vanish(now_s, worker, reason)
            case GatewayTicked():
                return self._tick(now_s)
            case ViewReceived(view):
                self._waits.hear(now_s, view)
                return []
            case TenantsChanged(limits):
                self._tenants.change(now_s, limits)
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
        return self._route(now_s, entry)

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

    def _route(self, now_s: float, entry: LedgerEntry, avoid: str = "") -> list[GatewayEffect]:
        """Sends the request to a worker, or holds it if none is usable.

        A worker that lost this request before is never chosen; the one named `avoid` is chosen only if there is no
        other, and one with a full queue only if all are full.
        """
        usable = self._router.usable(entry.pool)
        if entry.lost_on or avoid:
            usable = [w for w in usable if w.name not in entry.lost_on]
            usable = [w for w in usable if w.name != avoid] or usable
        roomy = [w for w in usable if w.has_room(entry.request.prompt_tokens)]
        worker = self._router.choose(now_s, roomy or usable)
        if worker is None:
            self._ledger.hold(entry, now_s)
            return []
        self._ledger.send(entry, worker.name)
        self._router.send(now_s, worker, entry.request, entry.annotation)
        effects: list[GatewayEffect] = [SendSubmit(entry.request.id, worker.name, entry.attempt, entry.promised)]
        if entry.annotation is not None:
            effects.append(SendAnnotate(entry.request.id, worker.name, entry.attempt, entry.annotation))
        return effects

    def _release_held(self, now_s: float) -> list[GatewayEffect]:
        """Routes the held requests; one that stays held still waits from the time it was first held."""
        effects: list[GatewayEffect] = []
        for entry in self._ledger.held():
            held_s, pool = entry.held_s, self._directory.resolve(entry.pool)
            if pool is None or not self._router.usable(pool):
                continue
            entry.pool = pool
            if not entry.offered:
                entry.offered = True
                self._batches.offer(now_s, entry)
            effects += self._route(now_s, entry)
            if entry.state is RequestState.HELD:
                entry.held_s = held_s
        return effects

    def _lost(self, now_s: float, entry: LedgerEntry, ending: Ending) -> list[GatewayEffect]:
        """Sends a request elsewhere after its worker lost it, or settles it with `ending` if that is not possible:
        after the first token, after `max_attempts`, or if every other worker of the pool has lost it too."""
        lost_on = (*entry.lost_on, entry.worker)
        movable = entry.state is RequestState.SENT and entry.attempt < self._config.max_attempts
        others = any(w.name not in lost_on for w in self._router.usable(entry.pool))
        if not movable or not (others or self._router.hopeful(now_s, entry.pool, lost_on)):
            return [self._settle(now_s, entry, ending)]
        self._router.ended(entry.worker, entry.request.id)
        entry.lost_on = lost_on
        return self._route(now_s, entry)

    def _handed_back(self, now_s: float, request_id: str, attempt: int) -> list[GatewayEffect]:
        entry = self._ledger.current(request_id, attempt)
        if entry is None or entry.state is not RequestState.SENT:
            return []
        if attempt >= self._config.max_attempts:
            message = f"workers handed this request back {attempt} times without serving it: try again later"
            return [self._settle(now_s, entry, Ending(outcome=Outcome.NO_ENGINE, message=message))]
        self._router.ended(entry.worker, request_id)
        return self._route(now_s, entry, avoid=entry.worker)

    # --- what workers say ---

    def _hear(self, now_s: float, heartbeat: WorkerHeartbeat) -> list[GatewayEffect]:
        self._directory.hear(heartbeat)
        self._router.hear(now_s, heartbeat)
        return self._release_held(now_s)

    def _vanish(self, now_s: float, worker: str, reason: str) -> list[GatewayEffect]:
        self._router.connect(worker, False)
        ending = Ending(outcome=Outcome.WORKER_LOST, message=f"the worker of this request was lost: {reason}")
        effects: list[GatewayEffect] = []
        for entry in self._ledger.at(worker):
            effects += self._lost(now_s, entry, ending)
        return effects

    def _annotate(self, event: RequestAnnotated) -> list[GatewayEffect]:
        entry = self._ledger.get(event.request_id)
        if entry is None:
            return []
        entry.annotation = event.annotation
        if entry.state is RequestState.HELD:
            return []
        self._router.recost(entry.worker, entry.request, event.annotation)
        return [SendAnnotate(event.request_id, entry.worker, entry.attempt, event.annotation)]

    def _first_token(self, now_s: float, request_id: str, attempt: int) -> list[GatewayEffect]:
        entry = self._ledger.current(request_id, attempt)
        if entry is not None and entry.state is RequestState.SENT:
            self._ledger.stream(entry, now_s)
            self._router.started(entry.worker, request_id)
            self._tenants.started(entry.request.tenant)
        return []

    def _conclude(self, now_s: float, event: AttemptConcluded) -> list[GatewayEffect]:
        entry = self._ledger.current(event.request_id, event.attempt)
        if entry is None:
            return []
        ending = Ending(
            outcome=event.outcome,
            message=event.message,
            output_tokens=event.output_tokens,
            prompt_tokens=event.prompt_tokens,
            tpot_s=event.tpot_s,
            retry_after_s=event.retry_after_s,
            timeline=event.timeline,
        )
        if event.outcome is Outcome.SLO_UNREACHABLE and entry.content and event.retry_after_s is not None:
            wait_s = self._promises.make(now_s, entry.content, event.retry_after_s)
            ending = replace(ending, retry_after_s=wait_s)
        if event.outcome not in LOSSES:
            return [self._settle(now_s, entry, ending)]
        if event.outcome is Outcome.CANCELLED:
            ending = replace(ending, outcome=Outcome.WORKER_LOST, message="the worker dropped this request")
        return self._lost(now_s, entry, ending)

    # --- endings ---

    def _settle(self, now_s: float, entry: LedgerEntry, ending: Ending) -> Settle:
        request = entry.request
        streamed = self._ledger.settle(entry)
        if entry.worker:
            self._router.ended(entry.worker, request.id)
        prompt_tokens = request.prompt_tokens if ending.prompt_tokens is None else ending.prompt_tokens
        uncharged = ending.output_tokens + prompt_tokens - request.prompt_tokens
        self._tenants.ended(request.tenant, waiting=not streamed, tokens=uncharged)
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
        effects: list[GatewayEffect] = []
        if entry.state is not RequestState.HELD:
            effects.append(SendCancel(entry.request.id, entry.worker, entry.attempt))
        return [*effects, self._settle(now_s, entry, Ending(outcome=outcome, message=message))]

    def _cancel_all(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for entry in list(self._ledger.by_arrival()):
            effects += self._cancel(now_s, entry, Outcome.DRAINING, "the gateway shut down before the answer ended")
        return effects + self._batches.flush(now_s)

    # --- time ---

    def _tick(self, now_s: float) -> list[GatewayEffect]:
        effects: list[GatewayEffect] = []
        for entry in self._ledger.held():
            if now_s - entry.held_s >= self._config.patience_s:
                ending = self._given_up(entry.request.model)
                effects.append(self._settle(now_s, entry, ending))
        for entry in self._expired(now_s):
            limit_s = self._config.request_timeout_s
            message = f"the answer was not complete within {limit_s:g} s (HMAS_REQUEST_TIMEOUT_S)"
            effects += self._cancel(now_s, entry, Outcome.TIMED_OUT, message)
        for entry in self._rebalancer.recalls(now_s):
            effects.append(SendRecall(entry.request.id, entry.worker, entry.attempt))
        self._router.forget_silent(now_s)
        return effects + self._batches.due(now_s)

    def _expired(self, now_s: float) -> list[LedgerEntry]:
        """Returns the requests older than `request_timeout_s`, which come first in the order of arrival."""
        expired: list[LedgerEntry] = []
        for entry in self._ledger.by_arrival():
            if now_s - entry.request.arrival_s < self._config.request_timeout_s:
                break
            expired.append(entry)
        return expired
