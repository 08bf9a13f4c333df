"""Wiring: `python -m hmas.meta`."""

from collections.abc import Callable
from typing import Any

import structlog

from hmas import entry_points
from hmas.contracts.pool_plan import PlanDecision
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.entry_points import PluginMakers
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.selectors.table import SELECTORS
from hmas.meta.audit import AuditStream
from hmas.meta.introduction import PoolIntroduction
from hmas.meta.metrics import MetaMetrics
from hmas.meta.plan_inputs import LastPlan, PinnedPlanFile
from hmas.meta.server import SERVICE, MetaServer
from hmas.meta.settings import MetaSettings
from hmas.meta.shell import MetaShell
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.runtime.rpc import RpcServer
from hmas.runtime.security import security_of
from hmas.wire.v1 import observe_pb2_grpc

log = structlog.get_logger()


def _subscribe(shell: MetaShell, audit: AuditStream, plans: LastPlan | None) -> None:
    service = shell.service
    introduction = PoolIntroduction(service.bucket, service.post)
    receive: dict[type, Callable[[Any], None]] = {WorkerHeartbeat: introduction.hear, PlanDecision: shell.hear_plan}
    service.bus.follow(Role.META, service.post, receive=receive)
    service.bus.on_connected(audit.ensure)
    service.bus.on_connected(introduction.connected)
    if plans is not None:
        service.bus.on_connected(plans.restore)


async def serve(settings: MetaSettings, instance: str, stop: StopSignal) -> None:
    """Runs the meta service until `stop` is set."""
    config = settings.meta_config()
    origin = AgentOrigin(Role.META, instance, config)
    agent, rpc = MetaAgent(config, PluginMakers(entry_points.SELECTORS, SELECTORS)), RpcServer(security_of(settings))
    server = MetaServer(agent)
    observe_pb2_grpc.add_MetaServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    shell = MetaShell(origin, settings, agent, server, MetaMetrics())
    log.info("selector", selector=settings.chosen_selector, llm=settings.llm_url or "HMAS_LLM_URL is not set")
    audit = AuditStream(shell.service.bucket)
    catalogue = config.plan.catalogue
    plan_file = (
        [PinnedPlanFile(settings.plan_file, catalogue, shell.service.post).keep()]
        if settings.plan_file and catalogue
        else []
    )
    service = shell.service
    _subscribe(shell, audit, LastPlan(service.bucket, shell.hear_plan, service.post) if catalogue else None)

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    async def finish() -> None:
        await shell.close()
        await rpc.stop(0.5)

    await shell.service.run(stop, start=start, finish=finish, beside=[audit.keep(), *plan_file])


def main() -> None:
    run_service("meta", MetaSettings, serve)


if __name__ == "__main__":
    main()
