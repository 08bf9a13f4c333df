"""The pump: grants the head of the queue, and only the head, on the least loaded engine with room (H-MAS §3.5)."""

from math import inf

from hmas.contracts.execution import Grant, Timeline
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import ToGateway, WorkerEffect
from hmas.worker.agent import ends
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.state import AgentState


def pump(state: AgentState) -> list[WorkerEffect]:
    """Grants the head of the queue again and again, while it fits an engine.

    At most `max_grants_per_pump` are granted; the next event or cycle goes on. A head that does not fit waits,
    and with it all requests behind it, because the topology alone decides which is next. It does not block the others
    for what lies with its gateway: it is parked if that could not carry out a grant now, and ended if no engine that is
    up can ever take it.
    """
    queue = state.queue
    effects: list[WorkerEffect] = []
    fenced = not state.controls.bypass
    left, parks = state.config.max_grants_per_pump, state.config.max_parks_per_pump
    roomy = [engine for engine in state.up if engine.in_flight < engine.cap]
    if roomy and queue.paced and queue.waiting > 1:
        queue.observe(state.service_view())
    while left and parks and state.up and (entry := queue.peek()) is not None:
        gateway = state.gateways[entry.gateway]
        willing = state.grantable(gateway)
        engine = choose(state, gateway, entry, roomy, fenced) if willing else None
        if engine is not None:
            effects.append(grant(state, engine))
            left -= 1
            if engine.in_flight >= engine.cap:
                roomy.remove(engine)
        elif willing and any(
            _could_take(state, e, entry) and not gateway.blocked(state.now_s, e.name) for e in state.up
        ):
            break
        elif any(_could_take(state, e, entry) for e in state.up):
            state.park(entry)
            parks -= 1
        else:
            effects.append(end_unservable(state, entry))
            left -= 1
    return effects


def _could_take(state: AgentState, engine: EngineState, entry: QueueEntry) -> bool:
    """Returns whether an engine that is up can take the request, now or later."""
    return engine.start_id not in entry.tried and state.gate.could_ever(engine, entry.request.prompt_tokens)


def choose(
    state: AgentState, gateway: Gateway, entry: QueueEntry, roomy: list[EngineState], fenced: bool
) -> EngineState | None:
    """Returns the engine to grant `entry` on, or None.

    `roomy` are the engines with a free sequence. If one is found, the reservation is written into `entry`. `fenced`:
    whether memory and pending prefill limit the grant (not so under the emergency bypass).
    """
    gate, prefill_s = state.gate, state.prefill_s(entry)
    window_s = state.config.prefill_window_s + state.lag_s  # news of prefill computed since may be late by the lag
    upper = gate.upper(entry)
    uncounted_s = state.config.gateways.uncounted_s
    prompt_tokens = entry.request.prompt_tokens
    best: EngineState | None = None
    best_load, best_blocks = inf, 0
    for engine in roomy:
        if entry.tried and engine.start_id in entry.tried:
            continue
        if not gate.could_ever(engine, prompt_tokens):
            continue
        if state.now_s < engine.held_until_s or not engine.ready(state.now_s, uncounted_s):
            continue
        in_flight = engine.in_flight
        if in_flight and engine.regulator.saturated < 0:
            continue  # held back by the inner loop, which never idles an engine
        if gateway.blocked(state.now_s, engine.name):
            continue
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
    return best


def grant(state: AgentState, engine: EngineState) -> ToGateway:
    """Takes the head out of the queue and grants it on `engine`."""
    queue = state.queue
    entry = queue.take()
    state.grants += 1
    entry.grant = state.grants
    entry.engine = engine.name
    entry.topology = queue.topology.value
    entry.granted_s = state.now_s
    engine.occupy(state.now_s, entry, state.prefill_s(entry))
    state.gateways[entry.gateway].unstarted[entry.request.id] = entry
    state.ledger.granted(state.now_s, entry)
    timeline = Timeline(
        engine=engine.name,
        topology=entry.topology,
        queued_s=state.now_s - entry.enqueued_s,
        queue_length=entry.queue_length,
        overtaken=entry.overtaken,
        switches=queue.switches - entry.switches_before,
        upper_output_tokens=entry.upper_output_tokens,
        relegated=entry.relegated,
    )
    message = Grant(
        request_id=entry.request.id,
        attempt=entry.attempt,
        grant=entry.grant,
        engine=engine.name,
        urgency=entry.urgency,
        pace_s=entry.pace_s,
        timeline=timeline,
    )
    return ToGateway(entry.gateway, message)


def end_unservable(state: AgentState, entry: QueueEntry) -> ToGateway:
    """Ends a queued request that no engine that is up can take, now or later."""
    prompt_tokens = entry.request.prompt_tokens
    if entry.tried:
        lost = ", ".join(entry.tried)
        return ends.refuse(state, entry, Outcome.ENGINE_ERROR, f"failed on {lost}; no other engine can take it")
    if any(state.gate.could_ever(engine, prompt_tokens) for engine in state.fleet.values()):
        message = f"all engines that could hold {prompt_tokens} prompt tokens are down: retry later"
        return ends.refuse(state, entry, Outcome.NO_ENGINE, message)
    message = state.gate.explain_never(list(state.fleet.values()), prompt_tokens)
    return ends.refuse(state, entry, Outcome.NEVER_FITS, message)
