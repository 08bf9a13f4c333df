"""The pump: dispatches the head of the queue, and only the head, to the least loaded engine with room (H-MAS §3.5)."""

from math import inf

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import Conclude, Dispatch, Reject, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.state import AgentState


def pump(state: AgentState) -> list[WorkerEffect]:
    """Dispatches the head of the queue again and again, while it fits an engine.

    At most `max_dispatches_per_pump` are dispatched; the next event or cycle goes on. A head that does not fit waits,
    and with it all requests behind it, because the topology alone decides which is next. A head that no engine that is
    up can ever take is ended, so that it does not block the others.
    """
    queue = state.queue
    effects: list[WorkerEffect] = []
    fenced = not state.controls.bypass
    left = state.config.max_dispatches_per_pump
    if queue.paced and queue.waiting > 1 and any(len(engine.running) < engine.cap for engine in state.up):
        queue.observe(state.service_view())
    while left and state.up and (entry := queue.peek()) is not None:
        left -= 1
        engine, hopeful = choose(state, entry, fenced)
        if engine is not None:
            effects.append(dispatch(state, engine))
        elif hopeful:
            break
        else:
            effects.append(end_unservable(state, entry))
    return effects


def choose(state: AgentState, entry: QueueEntry, fenced: bool) -> tuple[EngineState | None, bool]:
    """Returns the engine to dispatch `entry` to, or None, and whether an engine that is up could ever take it.

    If an engine is found, the reservation is written into `entry`. `fenced`: whether memory and pending prefill limit
    the dispatch (not so under bypass).
    """
    gate, prefill_s = state.gate, state.prefill_s(entry)
    window_s = state.config.prefill_window_s + state.lag_s  # news of prefill computed since may be late by the lag
    upper = gate.upper(entry)
    prompt_tokens = entry.request.prompt_tokens
    best: EngineState | None = None
    best_load, best_blocks = inf, 0
    hopeful = False
    for engine in state.up:
        if entry.tried and engine.start_id in entry.tried:
            continue
        if not gate.could_ever(engine, prompt_tokens):
            continue
        hopeful = True
        if state.now_s < engine.held_until_s:
            continue
        in_flight = len(engine.running)
        if in_flight >= engine.cap or (in_flight and engine.regulator.saturated < 0):
            continue  # held back by the inner loop, which never idles an engine
        blocks = gate.need(engine, entry, upper)
        if fenced and not gate.admits(state.now_s, engine, entry, blocks):
            continue
        if fenced and not engine.prefill.admits(prefill_s, window_s):
            continue
        load = in_flight / engine.cap
        if load < best_load:
            best, best_load, best_blocks = engine, load, blocks
    if best is not None:
        entry.blocks = best_blocks
        entry.bound_tokens = entry.upper_output_tokens = upper
    return best, hopeful


def dispatch(state: AgentState, engine: EngineState) -> Dispatch:
    """Takes the head out of the queue and starts it on `engine`."""
    entry = state.queue.take()
    entry.engine = engine.name
    entry.topology = state.queue.topology.value
    entry.dispatched_s = state.now_s
    engine.occupy(state.now_s, entry, state.prefill_s(entry))
    state.ledger.dispatched(state.now_s, entry)
    return Dispatch(entry.request.id, engine.name, entry.urgency, entry.pace_s)


def end_unservable(state: AgentState, entry: QueueEntry) -> Reject | Conclude:
    """Ends a queued request that no engine that is up can take, now or later."""
    prompt_tokens = entry.request.prompt_tokens
    if entry.tried:
        lost = ", ".join(entry.tried)
        return ends.reject(state, entry, Outcome.ENGINE_ERROR, f"failed on {lost}; no other engine can take it")
    if any(state.gate.could_ever(engine, prompt_tokens) for engine in state.fleet.values()):
        message = f"all engines that could hold {prompt_tokens} prompt tokens are down: retry later"
        return ends.reject(state, entry, Outcome.NO_ENGINE, message)
    message = state.gate.explain_never(list(state.fleet.values()), prompt_tokens)
    return ends.reject(state, entry, Outcome.NEVER_FITS, message)
