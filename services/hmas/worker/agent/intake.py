"""How the worker agent reacts to what gateways say about waiting requests: they come, get tags and are withdrawn; and
what it does when a gateway's stream opens, has given its snapshot, or ends."""

from dataclasses import replace

from hmas.contracts.execution import Annotate, Submit, Withdraw
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation, Request
from hmas.contracts.worker import ToGateway, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.state import WorkerState


def on_connected(state: WorkerState, name: str) -> None:
    on_lost(state, name)
    state.gateways[name] = Gateway(name, state.config.gateways)


def on_lost(state: WorkerState, name: str) -> None:
    """Forgets what waits for the gateway. What it runs goes on, and keeps its slot."""
    if state.gateways.pop(name, None) is None:
        return
    for entry in [entry for entry in state.queue.entries() if entry.gateway == name]:
        if entry.state is EntryState.RUNNING:
            entry.orphaned_s = state.now_s
            entry.successor = None
        else:
            ends.forget(state, entry)


def on_submit(state: WorkerState, gateway: Gateway, message: Submit) -> list[WorkerEffect]:
    """Queues a request or refuses it. One that is known already is ignored, unless it shows that a grant was lost."""
    held = state.queue.get(message.request.id)
    gateway.named.add(message.request.id)
    if held is None:
        return _take_in(state, gateway, message)
    if held.gateway != gateway.name or message.attempt < held.attempt:
        return []
    if held.state is not EntryState.RUNNING:
        if message.attempt == held.attempt:
            return []
        ends.forget(state, held)
        return _take_in(state, gateway, message)
    if not gateway.synced:
        held.attempt = message.attempt  # the snapshot says that it waits: the grant never arrived
        ends.back_to_the_queue(state, held)
    elif message.attempt > (held.successor or held).attempt:
        held.successor = message  # it was withdrawn and came back before its old grant was answered
    return []


def _take_in(state: WorkerState, gateway: Gateway, message: Submit) -> list[WorkerEffect]:
    entry = new_entry(state, gateway, message.request, message.attempt)
    entry.promised = message.promised
    refusal = _refusal(state, message.request) or _overflow(state, entry)
    if refusal is not None:
        return [ends.turn_away(state, entry, *refusal)]
    state.queue.add(entry)
    entry.memory_before = state.memory_waits.totals(state.now_s)
    state.sleep_waits.note(state.now_s, entry)
    state.admit(entry)
    if not message.again:
        state.reports.queued(state.now_s, entry)
    if message.request.slo_stated:
        state.see_slo(entry.slo)
    return []


def new_entry(state: WorkerState, gateway: Gateway, request: Request, attempt: int) -> QueueEntry:
    estimate = state.prior.estimate(request.tenant, request.prompt_tokens)
    state.see_prior(estimate.ttft_s)
    entry = QueueEntry(
        request, attempt=attempt, gateway=gateway.name, seq=state.next_seq(), now_s=state.now_s, estimate=estimate
    )
    entry.usual_tokens = state.applications.usual_tokens(request)
    return entry


def succeed(state: WorkerState, entry: QueueEntry) -> list[WorkerEffect]:
    """Takes in the later attempt of a request whose earlier one has just left, if there is one."""
    gateway = state.gateways.get(entry.gateway)
    if entry.successor is None or gateway is None:
        return []
    effects = _take_in(state, gateway, entry.successor)
    later = state.queue.get(entry.request.id)
    if later is not None and entry.annotation is not None:
        state.queue.annotate(later, entry.annotation)
    return effects


def on_synced(state: WorkerState, gateway: Gateway) -> list[WorkerEffect]:
    """Forgets what the snapshot did not name, lets the rest be granted, and tells the gateway of the worker's load."""
    if not gateway.synced:
        for entry in [entry for entry in state.queue.entries() if entry.gateway == gateway.name]:
            if entry.request.id not in gateway.named:
                ends.forget(state, entry)
        gateway.demand = float(len(gateway.named))
        gateway.named.clear()
        gateway.synced = True
        state.wake(gateway)
    return [ToGateway(other.name, load) for other, load in state.loads() if other is gateway]


def on_annotate(state: WorkerState, gateway: Gateway, message: Annotate) -> None:
    entry = state.queue.get(message.request_id)
    if entry is None or entry.gateway != gateway.name:
        return
    if entry.attempt == message.attempt or entry.successor is not None:
        state.see_costs(message.annotation.costs)
        annotate(state, entry, message.annotation)


def annotate(state: WorkerState, entry: QueueEntry, annotation: Annotation) -> None:
    if entry.annotation is None:
        state.tag_wait.came(state.now_s - entry.enqueued_s)
    state.length_bias.forget(entry)
    if entry.annotation is None and not entry.request.slo_stated:
        state.see_slo(annotation.tags.slo)
    entry.claimed = annotation.tags
    tags = state.length_bias.corrected(entry.request, entry.claimed)
    state.queue.annotate(entry, replace(annotation, tags=tags))
    state.admit_tagged(entry)
    if entry.state is EntryState.RUNNING:
        entry.run_on(state.fleet[entry.engine].info)
        state.length_bias.began(entry)
        if entry.output_tokens <= entry.upper_output_tokens:
            _readmit(state, entry)


def _readmit(state: WorkerState, entry: QueueEntry) -> None:
    """Reserves anew for a running request whose tags came after its grant, mostly milliseconds after: the prior knows
    its tenant and the length of its prompt alone."""
    engine = state.fleet[entry.engine]
    reserved = state.gate.reserved(entry)
    blocks = state.gate.need(engine, entry, reserved)
    engine.reserve(entry, blocks)
    engine.count_context(entry)
    entry.admit(state.gate.upper(entry), reserved, blocks)


def on_withdraw(state: WorkerState, gateway: Gateway, message: Withdraw) -> None:
    """Forgets a request that waits. One that was granted meanwhile keeps its slot until the gateway has answered."""
    entry = state.queue.get(message.request_id)
    if entry is None or entry.gateway != gateway.name:
        return
    if entry.successor is not None:
        if entry.successor.attempt == message.attempt:
            entry.successor = None
    elif entry.attempt == message.attempt:
        if entry.state is EntryState.RUNNING:
            entry.withdrawn = True
        else:
            ends.forget(state, entry)


def on_drain(state: WorkerState) -> list[WorkerEffect]:
    """Says to all gateways that nothing is granted any more; they take their requests elsewhere."""
    state.draining = True
    return [ToGateway(gateway.name, load) for gateway, load in state.loads()]


def _refusal(state: WorkerState, request: Request) -> tuple[Outcome, str] | None:
    if engineless_too_long(state) and not any(engine.on_trial(state.now_s) for engine in state.up):
        return Outcome.NO_ENGINE, no_engine_message(state)
    for engine in state.fleet.values():
        if state.gate.could_ever(engine, request.prompt_tokens):
            return None
    if state.fleet:
        return Outcome.NEVER_FITS, state.gate.explain_never(list(state.fleet.values()), request.prompt_tokens)
    return None


def _overflow(state: WorkerState, entry: QueueEntry) -> tuple[Outcome, str] | None:
    reason = state.queue.refusal(entry)
    return None if reason is None else (Outcome.POOL_QUEUE_FULL, reason)


def engineless_too_long(state: WorkerState) -> bool:
    """Returns whether requests are to be refused for want of an engine. A worker that drains or stands by leaves its
    requests to their gateways."""
    since_s = state.engineless_since_s
    return (
        not state.draining
        and not state.standby
        and since_s is not None
        and state.now_s - since_s >= state.config.no_engine_patience_s
    )


def no_engine_message(state: WorkerState) -> str:
    patience_s = state.config.no_engine_patience_s
    alone = sorted(e.name for e in state.fleet.values() if e.life.serves and e.info.needs_partner and e not in state.up)
    why = f"; {alone[0]} is up and has no other engine that does the other half of its requests" if alone else ""
    return (
        f"all engines of worker {state.config.worker} have been down, or without a token for any request, for at least "
        f"{patience_s:g} s{why}: retry later"
    )
