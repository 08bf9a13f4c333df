"""How the worker agent reacts to events from gateways: requests come, get tags, are cancelled or recalled."""

from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.contracts.worker import Annotated, CancelRequested, GatewayLost, RecallRequested, Submitted, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.state import AgentState


def on_submitted(state: AgentState, event: Submitted) -> list[WorkerEffect]:
    """Queues a submitted request or refuses it.

    An attempt that was submitted before is ignored; a higher attempt ends a lower one of the same request.
    """
    request = event.request
    effects: list[WorkerEffect] = []
    held = state.queue.get(request.id)
    if held is not None:
        if event.attempt <= held.attempt:
            return effects
        message = f"superseded by attempt {event.attempt} of the same request"
        effects = ends.drop(state, held, Outcome.CANCELLED, message)
    elif event.attempt <= state.ended_attempt(request.id):
        return effects
    estimate = state.prior.estimate(request.tenant, request.prompt_tokens)
    state.see_prior(estimate.ttft_s)
    entry = QueueEntry(
        request,
        attempt=event.attempt,
        gateway=event.gateway,
        seq=state.next_seq(),
        now_s=state.now_s,
        estimate=estimate,
    )
    entry.promised = event.promised
    entry.usual_tokens = state.applications.usual_tokens(request)
    refusal = _refusal(state, request) or _overflow(state, entry)
    if refusal is not None:
        effects.append(ends.refuse(state, entry, *refusal))
        return effects
    state.queue.add(entry)
    state.ledger.queued(state.now_s, entry)
    return effects


def _refusal(state: AgentState, request: Request) -> tuple[Outcome, str] | None:
    if state.draining:
        return Outcome.DRAINING, f"worker {state.config.worker} is draining and takes no new requests"
    if engineless_too_long(state):
        return Outcome.NO_ENGINE, no_engine_message(state)
    for engine in state.fleet.values():
        if state.gate.could_ever(engine, request.prompt_tokens):
            return None
    if state.fleet:
        return Outcome.NEVER_FITS, state.gate.explain_never(list(state.fleet.values()), request.prompt_tokens)
    return None


def _overflow(state: AgentState, entry: QueueEntry) -> tuple[Outcome, str] | None:
    reason = state.queue.refusal(entry)
    return None if reason is None else (Outcome.POOL_QUEUE_FULL, reason)


def engineless_too_long(state: AgentState) -> bool:
    since_s = state.engineless_since_s
    return since_s is not None and state.now_s - since_s >= state.config.no_engine_patience_s


def no_engine_message(state: AgentState) -> str:
    patience_s = state.config.no_engine_patience_s
    return f"all engines of worker {state.config.worker} have been down for at least {patience_s:g} s: retry later"


def on_annotated(state: AgentState, event: Annotated) -> None:
    entry = state.queue.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt:
        state.see_prefill(event.annotation.cost.ttft_s)
        entry.claimed = event.annotation.tags
        tags = state.length_bias.corrected(entry.request, entry.claimed)
        state.queue.annotate(entry, replace(event.annotation, tags=tags))


def on_cancelled(state: AgentState, event: CancelRequested) -> list[WorkerEffect]:
    entry = state.queue.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt:
        return ends.drop(state, entry, Outcome.CANCELLED, "cancelled by the client")
    return []


def on_recalled(state: AgentState, event: RecallRequested) -> list[WorkerEffect]:
    entry = state.queue.get(event.request_id)
    if entry is not None and entry.attempt == event.attempt and entry.state is EntryState.QUEUED:
        return [ends.hand_back(state, entry)]
    return []


def on_gateway_lost(state: AgentState, event: GatewayLost) -> list[WorkerEffect]:
    message = f"gateway {event.gateway}, which submitted the request, is gone"
    gone = [entry for entry in state.queue.entries() if entry.gateway == event.gateway]
    return [effect for entry in gone for effect in ends.drop(state, entry, Outcome.CANCELLED, message)]


def on_drain(state: AgentState) -> list[WorkerEffect]:
    state.draining = True
    return [ends.hand_back(state, entry) for entry in state.queue.queued()]
