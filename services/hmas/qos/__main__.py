"""Shell: `python -m hmas.qos`."""

from typing import assert_never

from hmas.contracts.control_agents import PublishLong, PublishShort, QosEffect, QosEvent
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.qos.agent import QosAgent
from hmas.qos.settings import QosSettings
from hmas.qos.shell import SERVICE, QosServer, ViewMetrics
from hmas.runtime.agent_service import AgentService
from hmas.runtime.lifecycle import Stop, run_service
from hmas.runtime.rpc import RpcServer
from hmas.wire.subjects import subject_of
from hmas.wire.v1 import observe_pb2_grpc


async def serve(settings: QosSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`."""
    config = settings.qos_config()
    origin = AgentOrigin(Role.QOS, instance, config)
    agent, metrics, rpc = QosAgent(config), ViewMetrics(), RpcServer()
    observe_pb2_grpc.add_QosServicer_to_server(QosServer(agent), rpc.server)  # type: ignore[no-untyped-call]

    def execute(effect: QosEffect) -> None:
        match effect:
            case PublishShort(view):
                service.bus.publish(subject_of(view), view)
                metrics.show(view)
            case PublishLong(view):
                service.bus.publish(subject_of(view), view)
            case _:
                assert_never(effect)

    service: AgentService[QosEvent, QosEffect] = AgentService(origin, settings, agent, execute)
    service.bus.follow(Role.QOS, service.post)

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    await service.run(stop, start=start, finish=lambda: rpc.stop(0.5))


def main() -> None:
    run_service("qos", QosSettings, serve)


if __name__ == "__main__":
    main()
