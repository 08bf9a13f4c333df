"""How the worker agent's books are rebuilt from what a gateway says that it runs on the worker's engines."""

from hmas.contracts.execution import Adopt
from hmas.contracts.worker import WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.engine_events import stop, unknown_engine, untouched
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.intake import annotate, new_entry
from hmas.worker.agent.state import WorkerState


def on_adopt(state: WorkerState, gateway: Gateway, message: Adopt) -> list[WorkerEffect]:
    """Counts a request that the gateway runs on an engine of this worker, whatever the limits."""
    gateway.named.add(message.request.id)
    state.grants = max(state.grants, message.grant)
    entry = state.queue.get(message.request.id)
    if entry is not None and entry.gateway != gateway.name:
        return []
    run = message.engine, message.grant
    if entry is not None and entry.state is EntryState.RUNNING and (entry.engine, entry.grant) == run:
        return _confirm(state, entry, message)
    if entry is not None:
        ends.forget(state, entry)
    _count(state, gateway, message)
    return []


def _confirm(state: WorkerState, entry: QueueEntry, message: Adopt) -> list[WorkerEffect]:
    """Brings a request that is in the books up to date. What was said on the old stream may have been lost, also that
    it is to stop because its engine went down."""
    entry.orphaned_s = None
    entry.stopped = entry.withdrawn = False
    engine = state.fleet[entry.engine]
    if message.prefilled:
        state.split_books.computed(state.now_s, entry)
    if message.first_token_s is not None and entry.prefill_on:
        state.split_books.answered(state.now_s, entry)
    if message.first_token_s is not None and entry.first_token_s is None:
        engine.began(state.now_s, entry)
        entry.first_token_s = message.first_token_s
        state.reports.first_token(message.first_token_s, entry, message.first_token_s - message.granted_s)
    engine.produced(entry, message.output_tokens)
    if engine.life.starts and not engine.life.answers and untouched(entry):
        return stop(state, entry, f"engine {engine.name} is down")
    return []


def _count(state: WorkerState, gateway: Gateway, message: Adopt) -> None:
    """Takes a request into the books that runs already, unknown to them."""
    engine = _engine(state, message.engine)
    entry = new_entry(state, gateway, message.request, message.attempt)
    state.queue.add(entry)
    if state.config.observes:
        state.reports.queued(state.now_s, entry)  # nobody submits it, and what perception says of it is asked for
    if message.annotation is not None:
        annotate(state, entry, message.annotation)
    state.queue.run(entry)
    entry.engine, entry.grant, entry.granted_s = engine.name, message.grant, message.granted_s
    entry.output_tokens = message.output_tokens
    reserved = state.gate.reserved(entry)
    entry.admit(state.gate.upper(entry), reserved, state.gate.need(engine, entry, reserved))
    entry.run_on(engine.info)
    if not message.prefill or message.first_token_s is not None:
        engine.adopt(state.now_s, entry, state.prefill_s(entry, engine), message.first_token_s)
        return
    prefill = _engine(state, message.prefill)
    engine.occupy(state.now_s, entry, None)
    blocks = state.gate.need(prefill, entry, 1.0)
    state.split_books.begin(state.now_s, entry, engine, prefill, blocks, state.prefill_s(entry, prefill))
    if message.prefilled or prefill.info.needs_partner:
        engine.adopt_one()
    if not message.prefilled:
        prefill.adopt_one()
    else:
        state.split_books.computed(state.now_s, entry)


def _engine(state: WorkerState, name: str) -> EngineState:
    """Returns the engine of that name, which may not have come up since this worker started."""
    engine = state.fleet.get(name)
    if engine is None:
        engine = state.fleet[name] = EngineState(unknown_engine(name), state.config.engine)
    return engine
