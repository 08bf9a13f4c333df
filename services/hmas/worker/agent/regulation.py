"""How the worker agent applies controls, what it does at each cycle, and what it reports."""

from hmas.contracts.control import TopologyReceived, TupleReceived
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import (
    ControlExpired,
    EngineWentUp,
    PublishHeartbeat,
    PublishTelemetry,
    SteerEngine,
    ToGateway,
    TopologySwitched,
    WorkerEffect,
)
from hmas.worker.agent import ends, engine_events
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import EntryState
from hmas.worker.agent.intake import engineless_too_long, no_engine_message
from hmas.worker.agent.refusal import refuse_late
from hmas.worker.agent.state import AgentState


def on_engine_up(state: AgentState, event: EngineWentUp) -> list[WorkerEffect]:
    engine = engine_events.on_engine_up(state, event)
    engine.n_run = engine.b_token = 0  # this start of the engine has been told no limits yet
    told = heartbeat(state) if engine.starts == 1 and event.info.epoch else []  # gateways may be using it without us
    return [*_adopt(state, engine), *told]


def on_topology(state: AgentState, event: TopologyReceived) -> list[WorkerEffect]:
    if state.controls.take_decision(state.now_s, event.decision, event.aged_s):
        return apply_controls(state)
    return []


def on_tuple(state: AgentState, event: TupleReceived) -> list[WorkerEffect]:
    if state.controls.take_tuple(state.now_s, event.control, event.aged_s):
        return apply_controls(state)
    return []


def apply_controls(state: AgentState) -> list[WorkerEffect]:
    """Applies the controls in force: topology to the queue, fence to the admission gate, limits to the engines."""
    effects: list[WorkerEffect] = []
    topology, hints, reason = state.controls.topology
    before = state.queue.topology
    if state.queue.switch(topology, hints) and topology is not before:
        effects.append(TopologySwitched(before, topology, len(state.queue), reason))
    state.arrange()
    state.gate.adopt(state.controls.fence)
    for engine in state.fleet.values():
        effects += _adopt(state, engine)
    return effects


def _adopt(state: AgentState, engine: EngineState) -> list[WorkerEffect]:
    """Gives the engine its control. The time of its steps limits only orders that set aside what cannot be on time: in
    another one all that came after it would wait behind it, and be late too."""
    control = state.controls.engine(engine.name)
    engine.step = control.step if control is not None and state.queue.sets_aside else None
    if control is None:
        engine.regulator.stop()
    else:
        engine.regulator.adopt(control, _floor(engine))
    return set_caps(state, engine)


def set_caps(state: AgentState, engine: EngineState) -> list[WorkerEffect]:
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
    return [SteerEngine(engine.name, n_run, b_token)] if changed and engine.up else []


def _floor(engine: EngineState) -> int:
    """Returns the lower bound of the token budget: the sequences that decode, plus one if any is in prefill."""
    return engine.decoding + (len(engine.running) > engine.decoding)


def on_cycle(state: AgentState) -> list[WorkerEffect]:
    """Does the work of one cycle.

    It drops expired controls, stops grants that no gateway answered, regulates each engine, refuses queued requests
    that have been without an engine for too long and those that would be late, measures the speed, and reports
    telemetry if it is due.
    """
    effects: list[WorkerEffect] = []
    state.see_cycle()
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
    state.aim()
    for engine in state.up:
        engine.presume(state.now_s)
        effects += _regulate(state, engine)
    state.tag_wait.observe(state.now_s, waiting=bool(state.up) and state.queue.ready > 0)
    if len(state.queue) and engineless_too_long(state):
        for entry in [entry for entry in state.queue.entries() if entry.state is not EntryState.RUNNING]:
            effects.append(ends.refuse(state, entry, Outcome.NO_ENGINE, no_engine_message(state)))
    if state.queue.unwilling and not state.draining:
        effects += refuse_late(state)
    state.meter.close(state.now_s, backlogged=bool(state.up) and state.queue.ready > 0)
    if state.ledger.due(state.now_s):
        effects.append(report(state))
    return effects


def _regulate(state: AgentState, engine: EngineState) -> list[WorkerEffect]:
    control = state.controls.engine(engine.name)
    if control is None:
        return []
    if state.controls.frozen or not engine.measured(state.now_s):
        engine.regulator.relax()
        return []
    if not engine.sample_unread:
        return []  # without a new measurement there is no new error to act on
    engine.sample_unread = False
    engine.regulator.regulate(engine.utilisation(state.now_s), control, _floor(engine))
    return set_caps(state, engine)


def report(state: AgentState) -> PublishTelemetry:
    """Returns the effect that publishes the telemetry since the last report, and starts the next report."""
    now_s, ledger = state.now_s, state.ledger
    engines = [engine for engine in state.fleet.values() if engine.starts]
    telemetry = WorkerTelemetry(
        worker=state.config.worker,
        pool=state.config.pool,
        queued_count=len(state.queue),
        queued_tokens=state.queue.queued_tokens,
        topology=state.queue.topology.value,
        bypass=state.controls.bypass,
        control_expired=state.controls.expired,
        engines=tuple(ledger.engine_sample(now_s, engine) for engine in engines),
        queued=ledger.queued_records(now_s),
        dispatched=ledger.granted_records(now_s),
        first_tokens=ledger.first_token_records(now_s),
        finished=ledger.finished_records(now_s),
        running=ledger.running_records(now_s, engines),
    )
    ledger.close(now_s)
    return PublishTelemetry(telemetry)


def heartbeat(state: AgentState) -> list[WorkerEffect]:
    """Returns the effects that tell everyone of this worker, and each gateway of its load."""
    config, queue = state.config, state.queue
    engines = [engine for engine in state.fleet.values() if engine.starts]
    state.see_demands()
    loads = [ToGateway(gateway.name, load) for gateway, load in state.loads()]
    for engine in engines:
        engine.grew = False
    published = PublishHeartbeat(
        WorkerHeartbeat(
            worker=config.worker,
            incarnation=config.incarnation,
            address=config.address,
            wire_version=WIRE_VERSION,
            pool=config.pool,
            aliases=config.aliases,
            engines=tuple(engine.info for engine in engines),
            queued=len(queue),
            queued_tokens=queue.queued_tokens,
            running=sum(len(engine.running) for engine in engines),
            max_queued=config.max_queued,
            max_queued_tokens=config.max_queued_tokens,
            backlog_s=state.backlog_s(),
            draining=state.draining or state.standby,
            layout=state.layout,
        )
    )
    return [published, *loads]
