"""Shell: `python -m hmas.statera`."""

from typing import assert_never

import structlog

from hmas.contracts.control_agents import PublishAudit, PublishTuple, StateraEffect, StateraEvent
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.runtime.agent_service import AgentService
from hmas.runtime.lifecycle import Stop, run_service
from hmas.statera.agent import StateraAgent
from hmas.statera.settings import StateraSettings
from hmas.statera.shell import TupleMetrics, WorkerIntroduction
from hmas.wire import subjects

log = structlog.get_logger()


async def serve(settings: StateraSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`."""
    config = settings.statera_config()
    origin = AgentOrigin(Role.STATERA, instance, config)
    metrics = TupleMetrics()

    def execute(effect: StateraEffect) -> None:
        match effect:
            case PublishTuple(control):
                service.bus.publish(subjects.subject_of(control), control)
                service.keeper.keep(subjects.tuple_key(control.worker), control)
                metrics.show(control)
            case PublishAudit(record):
                service.bus.publish(subjects.AUDIT, record)
                log.info("tuple_moved", pool=record.pool, decision=record.decision, reason=record.reason)
            case _:
                assert_never(effect)

    agent = StateraAgent(config)
    service: AgentService[StateraEvent, StateraEffect] = AgentService(origin, settings, agent, execute)
    introduction = WorkerIntroduction(service.bucket, service.post)
    service.bus.follow(Role.STATERA, service.post, receive={WorkerHeartbeat: introduction.hear})
    await service.run(stop)


def main() -> None:
    run_service("statera", StateraSettings, serve)


if __name__ == "__main__":
    main()
