"""Controls, the scheduling cycle, and what the worker reports."""

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
    TopologySwitched,
)
from hmas.worker.agent import engine_events
from hmas.worker.agent.core import WorkerCore
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.intake import engineless_too_long, no_engine_message
from hmas.worker.agent.refusal import refuse_late

DEFAULT_SEQUENCES = 256  # of an engine that does not tell its own bound


def on_engine_up(core: WorkerCore, event: EngineWentUp) -> None:
    engine = engine_events.on_engine_up(core, event)
    engine.n_run = engine.b_token = 0  # nothing told to this start of it yet
    _adopt(core, engine)


def on_topology(core: WorkerCore, event: TopologyReceived) -> None:
    if core.controls.take_decision(core.now_s, event.decision, event.aged_s):
        apply_controls(core)


def on_tuple(core: WorkerCore, event: TupleReceived) -> None:
    if core.controls.take_tuple(core.now_s, event.control, event.aged_s):
        apply_controls(core)


def apply_controls(core: WorkerCore) -> None:
    """Put what is in force into order, gate and engines."""
    topology, hints, reason = core.controls.topology
    before = core.pool.topology
    if core.pool.switch(topology, hints) and topology is not before:
        core.effects.append(TopologySwitched(before, topology, len(core.pool), reason))
    core.gate.adopt(core.controls.fence)
    for engine in core.fleet.values():
        _adopt(core, engine)


def _adopt(core: WorkerCore, engine: EngineState) -> None:
    control = core.controls.engine(engine.name)
    if control is None:
        engine.regulator.stop()
    else:
        engine.regulator.adopt(control, _floor(engine))
    set_caps(core, engine)


def set_caps(core: WorkerCore, engine: EngineState) -> None:
    """Bypass: the engine's own bound. Tuple: N_run and B_token. Neither: the static bound."""
    control = core.controls.engine(engine.name)
    own = engine.sequences or DEFAULT_SEQUENCES
    if control is not None:
        n_run, b_token = max(1, control.n_run), engine.regulator.b_token
    elif core.controls.bypass:
        n_run = b_token = own
    else:
        n_run = b_token = core.config.static_n_run or own
    changed = (n_run, b_token) != (engine.n_run, engine.b_token)
    engine.n_run, engine.b_token = n_run, b_token
    engine.cap = max(1, min(n_run, b_token))
    if changed and engine.up:
        core.effects.append(SteerEngine(engine.name, n_run, b_token))


def _floor(engine: EngineState) -> int:
    """Running decodes, and room for one sequence in prefill to become one."""
    return engine.decoding + (len(engine.running) > engine.decoding)


def on_cycle(core: WorkerCore) -> None:
    """Expiry, the inner loop, patience without engines, the meter, telemetry."""
    core.see_cycle()
    expired = core.controls.expire(core.now_s)
    if expired:
        core.effects.extend(ControlExpired(control) for control in expired)
        apply_controls(core)
    for engine in core.up:
        engine.refresh_tightest()
        engine.presume(core.now_s)
        _regulate(core, engine)
    if len(core.pool) and engineless_too_long(core):
        for entry in core.pool.queued():
            core.reject(entry, Outcome.NO_ENGINE, no_engine_message(core))
    if core.pool.unwilling:
        refuse_late(core)
    core.meter.close(core.now_s, backlogged=bool(core.up) and len(core.pool) > 0)
    if core.ledger.due(core.now_s):
        report(core)


def _regulate(core: WorkerCore, engine: EngineState) -> None:
    control = core.controls.engine(engine.name)
    if control is None:
        return
    if core.controls.frozen or not engine.measured(core.now_s):
        engine.regulator.relax()
        return
    if not engine.sample_unread:
        return  # without a new measurement there is no new error to act on
    engine.sample_unread = False
    engine.regulator.regulate(engine.utilisation(core.now_s), control, _floor(engine))
    set_caps(core, engine)


def report(core: WorkerCore) -> None:
    """The telemetry since the last report."""
    now_s, ledger = core.now_s, core.ledger
    engines = list(core.fleet.values())
    telemetry = WorkerTelemetry(
        worker=core.config.worker,
        pool=core.config.pool,
        queued_count=len(core.pool),
        queued_tokens=core.pool.queued_tokens,
        topology=core.pool.topology.value,
        bypass=core.controls.bypass,
        control_expired=core.controls.expired,
        engines=tuple(ledger.engine_sample(now_s, engine) for engine in engines),
        queued=ledger.queued_records(now_s),
        dispatched=ledger.dispatched_records(now_s),
        first_tokens=ledger.first_token_records(now_s),
        finished=ledger.finished_records(now_s),
        running=ledger.running_records(now_s, engines),
    )
    ledger.close(now_s)
    core.effects.append(PublishTelemetry(telemetry))


def heartbeat(core: WorkerCore) -> None:
    config, pool = core.config, core.pool
    engines = core.fleet.values()
    core.effects.append(
        PublishHeartbeat(
            WorkerHeartbeat(
                worker=config.worker,
                incarnation=config.incarnation,
                address=config.address,
                wire_version=WIRE_VERSION,
                pool=config.pool,
                aliases=config.aliases,
                engines=tuple(engine.info for engine in engines),
                queued=len(pool),
                queued_tokens=pool.queued_tokens,
                running=sum(len(engine.running) for engine in engines),
                max_queued=config.max_queued,
                max_queued_tokens=config.max_queued_tokens,
                backlog_s=core.backlog_s(),
                draining=core.draining,
            )
        )
    )
