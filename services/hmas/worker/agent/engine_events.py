"""How the worker agent reacts to events from engines: tokens, ends, failures, engines that come up or go down."""

from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    Abort,
    EngineFailed,
    EngineFinished,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FirstTokenReceived,
    ProgressSampled,
    WorkerEffect,
)
from hmas.worker.agent import ends
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.state import AgentState


def _running(state: AgentState, request_id: str) -> QueueEntry | None:
    """Returns the request if it runs on an engine; None if it has ended or returned to the queue since the event."""
    entry = state.queue.get(request_id)
    return entry if entry is not None and entry.state is EntryState.RUNNING else None


def on_first_token(state: AgentState, event: FirstTokenReceived) -> None:
    entry = _running(state, event.request_id)
    if entry is None or entry.first_token_s is not None or entry.dispatched_s is None:
        return
    state.fleet[entry.engine].began(state.now_s, entry)
    state.meter.add(entry.prefill_s + entry.tpot_s)
    prefill_s = state.now_s - entry.dispatched_s
    state.ledger.first_token(state.now_s, entry, prefill_s)
    state.prior.learn_prefill(entry.request.prompt_tokens, prefill_s)


def on_progress(state: AgentState, event: ProgressSampled) -> None:
    for request_id, output_tokens in event.output_tokens:
        entry = _running(state, request_id)
        if entry is None or output_tokens <= entry.output_tokens:
            continue
        _produce(state, entry, output_tokens)
        state.queue.account(entry, entry.received_service, final=False)
        if output_tokens > entry.bound_tokens:
            _grow(state, entry)


def _produce(state: AgentState, entry: QueueEntry, output_tokens: int) -> None:
    state.meter.add(entry.tpot_s * (output_tokens - entry.output_tokens))
    state.fleet[entry.engine].produced(entry, output_tokens)


def _grow(state: AgentState, entry: QueueEntry) -> None:
    """Reserves more KV memory for a running request that has outgrown its length bound.

    The engine's forecast peak may then exceed its budget until other requests end.
    """
    engine = state.fleet[entry.engine]
    entry.bound_tokens = state.gate.grown(entry)
    engine.reserve(entry, max(entry.blocks, state.gate.need(engine, entry, entry.bound_tokens)))


def on_finished(state: AgentState, event: EngineFinished) -> list[WorkerEffect]:
    entry = _running(state, event.request_id)
    if entry is None:
        return []
    if entry.first_token_s is None:  # not streamed: the prefill shows only now
        state.meter.add(entry.prefill_s)
    _produce(state, entry, max(event.output_tokens, entry.output_tokens))
    concluded = ends.conclude(state, entry, Outcome.FINISHED, "")
    state.prior.learn_length(entry.request.tenant, entry.request.prompt_tokens, entry.output_tokens)
    state.applications.learn(entry.request, entry.output_tokens)
    if entry.claimed is not None:
        state.length_bias.learn(entry.request, entry.claimed, entry.output_tokens)
    if entry.first_token_s is not None and entry.output_tokens > 1:
        state.prior.learn_decode((state.now_s - entry.first_token_s) / (entry.output_tokens - 1))
    return [concluded]


def on_failed(state: AgentState, event: EngineFailed) -> list[WorkerEffect]:
    entry = _running(state, event.request_id)
    if entry is None:
        return []
    untouched = entry.first_token_s is None and not entry.output_tokens and not event.output_tokens
    if event.busy and untouched and _waits_for_room(state, entry):
        return _back_to_the_queue(state, entry)
    if event.retryable and untouched and (state.draining or _another(state, entry)):
        return _retry(state, entry)
    state.fleet[entry.engine].produced(entry, event.output_tokens)
    return [ends.conclude(state, entry, event.outcome, event.message)]


def _waits_for_room(state: AgentState, entry: QueueEntry) -> bool:
    """Returns whether a request that its engine had no room for should be dispatched again later.

    It is, until `no_engine_patience_s` after the first such answer. The engine gets no dispatch for `busy_pause_s`.
    """
    state.fleet[entry.engine].held_until_s = state.now_s + state.config.busy_pause_s
    if entry.busy_since_s is None:
        entry.busy_since_s = state.now_s
    return state.now_s - entry.busy_since_s < state.config.no_engine_patience_s


def _another(state: AgentState, entry: QueueEntry) -> bool:
    """Returns whether some engine that is up could take the request and has not failed with it, now or before."""
    lost = (*entry.tried, state.fleet[entry.engine].start_id)
    return any(e.start_id not in lost and state.gate.could_ever(e, entry.request.prompt_tokens) for e in state.up)


def _retry(state: AgentState, entry: QueueEntry) -> list[WorkerEffect]:
    """Queues a request again that its engine lost, for another engine or for the same one after a restart."""
    entry.tried = (*entry.tried, state.fleet[entry.engine].start_id)
    return _back_to_the_queue(state, entry)


def _back_to_the_queue(state: AgentState, entry: QueueEntry) -> list[WorkerEffect]:
    """Takes a request off its engine and back to its place in the queue; a draining worker hands it to the gateway."""
    state.fleet[entry.engine].release(state.now_s, entry)
    state.queue.requeue(entry)
    entry.engine = ""
    entry.dispatched_s = None
    return [ends.hand_back(state, entry)] if state.draining else []


def on_sampled(state: AgentState, event: EngineSampled) -> None:
    engine = state.fleet.get(event.engine)
    if engine is not None:
        engine.see(state.now_s, event)


def on_engine_up(state: AgentState, event: EngineWentUp) -> EngineState:
    """Records a new engine, one that came back (which counts as another start), or news about one that is up."""
    engine = state.fleet.get(event.info.engine)
    if engine is None:
        engine = state.fleet[event.info.engine] = EngineState(event.info, state.config.engine)
    engine.info = replace(event.info, up=True)
    engine.budget_blocks = state.gate.budget_blocks(engine)
    if not engine.up:
        engine.up = True
        engine.starts += 1
        state.up = [e for e in state.fleet.values() if e.up]
        state.engineless_since_s = None
    return engine


def on_engine_down(state: AgentState, event: EngineWentDown) -> list[WorkerEffect]:
    """Marks an engine as down and returns its requests without a token yet to the queue.

    A request that engines have lost more often than there are engines is ended as a failure instead. Requests that
    have tokens are left as they are: the end of their own connection to the engine decides.
    """
    engine = state.fleet.get(event.engine)
    if engine is None or not engine.up:
        return []
    engine.up = False
    engine.info = replace(engine.info, up=False)
    state.up = [e for e in state.fleet.values() if e.up]
    if not state.up:
        state.engineless_since_s = state.now_s
    effects: list[WorkerEffect] = []
    for entry in list(engine.running.values()):
        if entry.first_token_s is not None or entry.output_tokens:
            continue
        if len(entry.tried) > len(state.fleet):
            message = f"engine {engine.name} went down before the first token: {event.reason}"
            effects += ends.drop(state, entry, Outcome.ENGINE_ERROR, message)
            continue
        effects.append(Abort(entry.request.id, engine.name))
        effects += _retry(state, entry)
    return effects
