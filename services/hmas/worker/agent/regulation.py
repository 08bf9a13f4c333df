"""How the worker agent applies controls, and what it does at each cycle."""

from hmas.contracts.control import (
    INITIAL_TOPOLOGY,
    SAFE_TOPOLOGY,
    Hints,
    LayoutReceived,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    ControlExpired,
    EngineWentUp,
    SteerEngine,
    TopologyFailed,
    TopologySwitched,
    TopologyUnknown,
    WorkerEffect,
)
from hmas.worker.agent import announcements, ends, engine_events, sleeping
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import EntryState
from hmas.worker.agent.intake import engineless_too_long, no_engine_message
from hmas.worker.agent.refusal import refuse_late
from hmas.worker.agent.split.rules import unpaired
from hmas.worker.agent.state import WorkerState


def on_engine_up(state: WorkerState, event: EngineWentUp) -> list[WorkerEffect]:
    engine = engine_events.on_engine_up(state, event)
    engine.n_run = engine.b_token = 0  # this start of the engine has been told no limits yet
    first = engine.life.starts == 1 and event.info.epoch  # gateways may be using it without us
    announced = announcements.heartbeat(state) if first else []
    others = (each for each in state.fleet.values() if each.life.answers)
    return [*_adopt(state, engine), *announced, *unpaired(engine, others)]


def on_topology(state: WorkerState, event: TopologyReceived) -> list[WorkerEffect]:
    if state.controls.take_decision(state.now_s, event.decision, event.aged_s):
        return apply_controls(state)
    return []


def take_layout(state: WorkerState, event: LayoutReceived) -> bool:
    """Takes a layout decision, and tells whether another layout is in force by it."""
    before = state.controls.layout
    taken = state.controls.take_layout(state.now_s, event.decision, event.aged_s)
    return taken and state.controls.layout != before


def on_tuple(state: WorkerState, event: TupleReceived) -> list[WorkerEffect]:
    if state.controls.take_tuple(state.now_s, event.control, event.aged_s):
        return apply_controls(state)
    return []


def apply_controls(state: WorkerState) -> list[WorkerEffect]:
    """Applies the controls in force: topology to the queue, fence to the admission gate, limits to the engines."""
    effects: list[WorkerEffect] = []
    topology, hints, reason = state.controls.topology
    if topology in state.order_faults.taken_out:
        topology, hints, reason = INITIAL_TOPOLOGY, Hints(), f"{topology} was taken out"
    unknown = None if topology in state.queue.topologies else topology
    if unknown is not None:
        topology, hints, reason = SAFE_TOPOLOGY, Hints(), f"this worker has no topology {unknown}"
        if unknown != state.unknown_topology:
            effects.append(TopologyUnknown(unknown, topology))
    state.unknown_topology = unknown
    before = state.queue.topology
    if state.queue.switch(topology, hints) and topology != before:
        effects.append(TopologySwitched(before, topology, len(state.queue), reason))
    state.arrange()
    state.gate.adopt(state.controls.fence)
    for engine in state.fleet.values():
        effects += _adopt(state, engine)
    return effects


def take_out(state: WorkerState) -> list[WorkerEffect]:
    """Takes out the order in force, which has a fault: it is not used again before this worker starts anew."""
    failed = state.order_faults.take_out(state.queue)
    return [TopologyFailed(failed, INITIAL_TOPOLOGY, state.order_faults.taken_out[failed]), *apply_controls(state)]


def _adopt(state: WorkerState, engine: EngineState) -> list[WorkerEffect]:
    """Gives the engine its control. The time of its steps limits only orders that set aside what cannot be on time: in
    another one all that came after it would wait behind it, and be late too."""
    control = state.controls.engine(engine.name)
    engine.step_room.step = control.step if control is not None and state.queue.sets_aside else None
    if control is None:
        engine.regulator.stop()
    else:
        engine.regulator.adopt(control, _floor(engine))
    return set_caps(state, engine)


def set_caps(state: WorkerState, engine: EngineState) -> list[WorkerEffect]:
    """Sets an engine's limits on sequences and tokens per step, and returns the effect that steers it if they changed.

    The limits are N_run and B_token of the control tuple in force; under bypass the engine's own limit on sequences;
    otherwise the static limit.
    """
    control = state.controls.engine(engine.name)
    own = engine.sequences
    if control is not None:
        n_run, b_token = max(1, control.n_run), engine.regulator.b_token
    elif state.controls.bypass:
        n_run = b_token = own
    else:
        n_run = b_token = state.static_n_run(engine)
    changed = (n_run, b_token) != (engine.n_run, engine.b_token)
    engine.limit(n_run, b_token)
    return [SteerEngine(engine.name, n_run, b_token)] if changed and engine.life.answers else []


def _floor(engine: EngineState) -> int:
    """Returns the lower bound of the token budget: the sequences that decode, plus one if any is in prefill."""
    return engine.books.decoding + (len(engine.running) > engine.books.decoding)


def on_cycle(state: WorkerState) -> list[WorkerEffect]:
    """Does the work of one cycle.

    It drops expired controls, stops grants that no gateway answered, regulates each engine, refuses queued requests
    that have been without an engine for too long and those that would be late, measures the speed, and reports
    telemetry if it is due.
    """
    effects: list[WorkerEffect] = []
    state.see_cycle()
    state.order_faults.see_withheld(state.now_s, state.queue, state.lanes)
    expired = state.controls.expire(state.now_s)
    if expired:
        effects.extend(ControlExpired(control) for control in expired)
        effects += apply_controls(state)
    for gateway in state.gateways.values():
        if gateway.see(state.now_s):
            state.wake(gateway)
        for entry in list(gateway.overdue(state.now_s)):
            effects += engine_events.stop(state, entry, "the gateway did not answer the grant")
    effects += engine_events.release_left(state)
    effects += sleeping.ask_back(state)
    state.aim()
    for engine in state.awake:
        engine.books.presume(state.now_s)
        effects += _regulate(state, engine)
    state.tag_wait.observe(state.now_s, waiting=bool(state.awake) and state.queue.ready > 0)
    if len(state.queue) and engineless_too_long(state):
        for entry in [entry for entry in state.queue.entries() if entry.state is not EntryState.RUNNING]:
            effects.append(ends.refuse(state, entry, Outcome.NO_ENGINE, no_engine_message(state)))
    if state.queue.unwilling and not state.draining:
        effects += refuse_late(state)
    state.meter.close(state.now_s, backlogged=bool(state.awake) and state.queue.ready > 0)
    if state.reports.due(state.now_s):
        effects.append(announcements.report(state))
    return effects


def _regulate(state: WorkerState, engine: EngineState) -> list[WorkerEffect]:
    control = state.controls.engine(engine.name)
    if control is None:
        return []
    if state.controls.frozen or not engine.counts.measured(state.now_s):
        engine.regulator.relax()
        return []
    if not engine.counts.unread:
        return []  # without a new measurement there is no new error to act on
    engine.counts.unread = False
    engine.regulator.regulate(engine.utilisation(state.now_s), control, _floor(engine))
    return set_caps(state, engine)
