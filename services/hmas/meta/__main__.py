"""Shell: `python -m hmas.meta`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

import structlog

from hmas.contracts.control_agents import AskSelector, MetaEffect, MetaEvent, PublishAudit, PublishTopology
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.meta.settings import MetaSettings
from hmas.meta.shell import SERVICE, DecisionMetrics, MetaServer, PoolIntroduction
from hmas.runtime.agent_service import AgentService
from hmas.runtime.extras import needs
from hmas.runtime.lifecycle import Stop, run_service
from hmas.runtime.rpc import RpcServer
from hmas.wire import subjects
from hmas.wire.v1 import observe_pb2_grpc

if TYPE_CHECKING:
    from hmas.meta.llm_client import LlmClient

log = structlog.get_logger()


def _subscribe(service: AgentService[MetaEvent, MetaEffect]) -> None:
    introduction = PoolIntroduction(service.bucket, service.post)
    service.bus.follow(Role.META, service.post, receive={WorkerHeartbeat: introduction.hear})
    service.bus.on_connected(introduction.connected)


def _llm_client(settings: MetaSettings, post: Callable[[object], None]) -> "LlmClient":
    with needs("meta", "set HMAS_SELECTOR=rules"):
        from hmas.meta.llm_client import LlmClient
    return LlmClient(settings.llm_url, settings.llm_model, settings.llm_api_key(), post)


async def serve(settings: MetaSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`."""
    config = settings.meta_config()
    origin = AgentOrigin(Role.META, instance, config)
    agent, metrics, rpc = MetaAgent(config), DecisionMetrics(), RpcServer()
    server = MetaServer(agent)
    observe_pb2_grpc.add_MetaServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]

    def execute(effect: MetaEffect) -> None:
        match effect:
            case PublishTopology(decision):
                service.bus.publish(subjects.subject_of(decision), decision)
                service.keeper.keep(subjects.topology_key(decision.pool), decision)
                metrics.show(decision)
            case PublishAudit(record):
                service.bus.publish(subjects.AUDIT, record)
                server.record(record)
                metrics.count(record)
                log.info(
                    "topology_decision",
                    kind=record.kind,
                    pool=record.pool,
                    decision=record.decision,
                    reason=record.reason,
                    selector=record.selector,
                )
            case AskSelector():
                if llm is not None:
                    llm.ask(effect)
            case _:
                assert_never(effect)

    service: AgentService[MetaEvent, MetaEffect] = AgentService(origin, settings, agent, execute)
    llm = _llm_client(settings, service.post) if settings.chosen_selector == "llm" else None
    log.info("selector", selector=settings.chosen_selector, llm=settings.llm_url or "no endpoint set: the rules decide")
    _subscribe(service)

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    async def finish() -> None:
        if llm is not None:
            await llm.close()
        await rpc.stop(0.5)

    await service.run(stop, start=start, finish=finish)


def main() -> None:
    run_service("meta", MetaSettings, serve)


if __name__ == "__main__":
    main()
