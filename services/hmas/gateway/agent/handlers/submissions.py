"""Where a request waits: the gateway agent sends it to a worker, takes it back, runs it by itself, or holds it."""

from dataclasses import replace

from hmas.contracts.execution import Adopt, Annotate, Submit, Withdraw
from hmas.contracts.gateway import GatewayEffect, RequestAnnotated, StartRun, ToWorker
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.requests.ledger import EngineRef, LedgerEntry, RequestState
from hmas.gateway.agent.routing.choice import cheapest, least_loaded, serving_workers
from hmas.gateway.agent.state import GatewayState


def route(state: GatewayState, entry: LedgerEntry) -> list[GatewayEffect]:
    """Sends a request that is at no worker to one that has not refused it; to one with a full queue only if all are
    full. Without such a worker the gateway places the request itself, if it may, or holds it. One that only observes
    places it always itself."""
    now_s, router = state.now_s, state.router
    if state.config.observe:
        ref = state.bypass.least_outstanding(now_s, entry.pool)
        if ref is not None:
            return run_at(state, entry, ref)
        state.ledger.hold(entry, now_s)
        return []
    usable = router.usable(entry.pool)
    if entry.request.prefix.nodes and len(usable) > 1:
        found = cheapest(router.chooser, now_s, usable, entry.request, entry.annotation, entry.refused_by)
        if found is not None:
            best, costs = found
            return [costs.chosen(entry.request.id, best), *submit(state, entry, best)]
    if entry.refused_by:
        usable = [w for w in usable if w.name not in entry.refused_by]
    roomy = [w for w in usable if w.has_room(entry.request.prompt_tokens)]
    candidates = serving_workers(now_s, roomy or usable, entry.request, entry.annotation)
    worker = least_loaded(now_s, candidates)
    if worker is not None:
        return submit(state, entry, worker)
    if state.bypass.allows(entry) and not state.ledger.held_count:  # those held are older
        ref = state.bypass.choose(now_s, entry.pool)
        if ref is not None:
            return run_at(state, entry, ref)
    state.ledger.hold(entry, now_s)
    return []


def submit(state: GatewayState, entry: LedgerEntry, worker: KnownWorker) -> list[GatewayEffect]:
    again = entry.submitted
    state.ledger.queue(entry, state.now_s, worker.name)
    state.router.send(state.now_s, worker, entry.request, entry.annotation)
    known = entry.request.prefix.nodes and len(state.router.usable(entry.pool)) > 1
    entry.expected = state.router.chooser.sent(worker, entry.request) if known else None
    return submission(entry, again=again)


def submission(entry: LedgerEntry, *, again: bool) -> list[GatewayEffect]:
    """Returns the messages that make a worker know of a waiting request."""
    request, attempt, note = entry.request, entry.attempt, entry.annotation
    message = Submit(request=request, attempt=attempt, promised=entry.promised, again=again)
    effects: list[GatewayEffect] = [ToWorker(entry.worker, message)]
    if note is not None:
        effects.append(ToWorker(entry.worker, Annotate(request.id, attempt, note)))
    return effects


def withdraw(state: GatewayState, entry: LedgerEntry) -> list[GatewayEffect]:
    """Takes a waiting request from its worker; nothing is to be done for one that is held."""
    if entry.state is not RequestState.QUEUED:
        return []
    state.router.withdrawn(entry.worker, entry.request, entry.annotation)
    return state.tell(entry.worker, Withdraw(entry.request.id, entry.attempt))


def run_at(state: GatewayState, entry: LedgerEntry, ref: EngineRef) -> list[GatewayEffect]:
    """Runs a request that is at no worker on an engine in bypass, or where this gateway only observes."""
    state.router.placed(ref[0])
    state.bypass.placed(state.now_s, ref)
    state.ledger.bypass(entry, state.now_s, state.next_run(), ref)
    state.stalls.started(state.now_s, entry)
    run, (worker, engine) = entry.run, ref
    observed = state.config.observe
    start = StartRun(request_id=entry.request.id, run=run, worker=worker, engine=engine, grant=None, observed=observed)
    return [start, *state.tell(worker, adoption(state, entry))] if observed else [start]


def adoption(state: GatewayState, entry: LedgerEntry) -> Adopt:
    """Returns what tells a worker of a request that runs on an engine of its."""
    leg = state.legs.of(entry)
    return Adopt(
        request=entry.request,
        attempt=entry.attempt,
        annotation=entry.annotation,
        engine=entry.engine,
        grant=entry.grant,
        output_tokens=entry.output_tokens,
        granted_s=entry.granted_s,
        first_token_s=entry.first_token_s,
        prefill="" if leg is None else leg.prefill,
        prefilled=leg is not None and leg.computed,
    )


def empty(state: GatewayState, worker: str) -> list[GatewayEffect]:
    """Takes all waiting requests from a worker that drains or whose stream is closed."""
    effects: list[GatewayEffect] = []
    for entry in state.ledger.queued_at(worker):
        effects += withdraw(state, entry)
        effects += route(state, entry)
    return effects


def release_held(state: GatewayState) -> list[GatewayEffect]:
    """Routes the held requests for which a worker is usable, and gives those their pools that came before the first
    heartbeat told which there are."""
    effects: list[GatewayEffect] = []
    for entry in state.ledger.held():
        pool = state.directory.resolve(entry.pool)
        if pool is None:
            continue
        entry.pool = pool
        if not entry.offered:
            entry.offered = True
            state.batches.offer(state.now_s, entry)
        if state.router.usable(pool):
            effects += route(state, entry)
    return effects


def rebalance(state: GatewayState) -> list[GatewayEffect]:
    """Moves waiting requests from overloaded workers to others, if that is due."""
    effects: list[GatewayEffect] = []
    for entry, worker in state.rebalancer.moves(state.now_s):
        effects += withdraw(state, entry)
        effects += submit(state, entry, worker)
    return effects


def on_annotated(state: GatewayState, event: RequestAnnotated) -> list[GatewayEffect]:
    """Tells the worker of the request's tags; or sends the request to another worker, if it turns out to wait at one
    that does not serve its pace class."""
    entry, router = state.ledger.get(event.request_id), state.router
    if entry is None:
        return []
    annotation = replace(event.annotation, utility=state.classes.get(event.annotation.tags.task))
    entry.annotation = annotation
    if entry.state is RequestState.HELD:
        return []
    router.chooser.learn(entry.pool, entry.request, annotation)
    router.recost(entry.worker, entry.request, annotation)
    if entry.state is RequestState.QUEUED and entry.attempt < state.config.max_attempts:
        tokens, refused = entry.request.prompt_tokens, entry.refused_by
        pool = router.usable(entry.pool)
        usable = [w for w in pool if w.name == entry.worker or (w.name not in refused and w.has_room(tokens))]
        several = len(usable) > 1
        candidates = serving_workers(state.now_s, usable, entry.request, entry.annotation) if several else ()
        if candidates and entry.worker not in (worker.name for worker in candidates):
            return [*withdraw(state, entry), *route(state, entry)]
    return state.tell(entry.worker, Annotate(event.request_id, entry.attempt, annotation))
