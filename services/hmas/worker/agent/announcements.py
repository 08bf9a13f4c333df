"""What the worker agent tells others of itself: its telemetry and its heartbeat."""

from dataclasses import replace

from hmas.contracts.registry import WIRE_VERSION, EngineInfo, WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import PublishHeartbeat, PublishTelemetry, ToGateway, WorkerEffect
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.state import WorkerState


def report(state: WorkerState) -> PublishTelemetry:
    """Returns the effect that publishes the telemetry since the last report, and starts the next report."""
    now_s, reports = state.now_s, state.reports
    engines = [engine for engine in state.fleet.values() if engine.life.starts]
    telemetry = WorkerTelemetry(
        worker=state.config.worker,
        pool=state.config.pool,
        queued_count=len(state.queue),
        queued_tokens=state.queue.queued_tokens,
        topology=state.queue.topology.value,
        bypass=state.controls.bypass,
        control_expired=state.controls.expired,
        engines=tuple(reports.engine_sample(now_s, engine) for engine in engines),
        queued=reports.queued_records(now_s),
        dispatched=reports.granted_records(now_s),
        first_tokens=reports.first_token_records(now_s),
        finished=reports.finished_records(now_s),
        running=reports.running_records(now_s, engines),
        queued_asleep=state.sleep_waits.count(state.queue.entries()),
    )
    reports.close(now_s)
    return PublishTelemetry(telemetry)


def heartbeat(state: WorkerState) -> list[WorkerEffect]:
    """Returns the effects that tell everyone of this worker, and each gateway of its load."""
    config, queue = state.config, state.queue
    engines = [engine for engine in state.fleet.values() if engine.life.starts]
    state.see_demands()
    loads = [ToGateway(gateway.name, load) for gateway, load in state.loads()]
    for engine in engines:
        engine.counts.grew = False
    published = PublishHeartbeat(
        WorkerHeartbeat(
            worker=config.worker,
            incarnation=config.incarnation,
            address=config.address,
            wire_version=WIRE_VERSION,
            pool=config.pool,
            aliases=config.aliases,
            engines=tuple(_told(engine) for engine in engines),
            queued=len(queue),
            queued_tokens=queue.queued_tokens,
            running=state.running,
            max_queued=config.max_queued,
            max_queued_tokens=config.max_queued_tokens,
            backlog_s=state.backlog_s(),
            draining=state.draining or state.standby,
            layout=state.layout,
        )
    )
    return [published, *loads]


def _told(engine: EngineState) -> EngineInfo:
    return replace(engine.info, suspected=True) if engine.life.suspected else engine.info
