"""Wiring: `python -m hmas.meta`."""

import structlog

from hmas.contracts.control_agents import MetaEffect, MetaEvent
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.meta.introduction import PoolIntroduction
from hmas.meta.metrics import MetaMetrics
from hmas.meta.server import SERVICE, MetaServer
from hmas.meta.settings import MetaSettings
from hmas.meta.shell import MetaShell
from hmas.runtime.agent_service import AgentService
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.runtime.rpc import RpcServer
from hmas.runtime.security import security_of
from hmas.wire.v1 import observe_pb2_grpc

log = structlog.get_logger()


def _subscribe(service: AgentService[MetaEvent, MetaEffect]) -> None:
    introduction = PoolIntroduction(service.bucket, service.post)
    service.bus.follow(Role.META, service.post, receive={WorkerHeartbeat: introduction.hear})
    service.bus.on_connected(introduction.connected)


async def serve(settings: MetaSettings, instance: str, stop: StopSignal) -> None:
    """Runs the meta service until `stop` is set."""
    config = settings.meta_config()
    origin = AgentOrigin(Role.META, instance, config)
    agent, rpc = MetaAgent(config), RpcServer(security_of(settings))
    server = MetaServer(agent)
    observe_pb2_grpc.add_MetaServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    shell = MetaShell(origin, settings, agent, server, MetaMetrics())
    log.info("selector", selector=settings.chosen_selector, llm=settings.llm_url or "HMAS_LLM_URL is not set")
    _subscribe(shell.service)

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    async def finish() -> None:
        await shell.close()
        await rpc.stop(0.5)

    await shell.service.run(stop, start=start, finish=finish)


def main() -> None:
    run_service("meta", MetaSettings, serve)


if __name__ == "__main__":
    main()
