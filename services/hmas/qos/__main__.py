"""Shell: `python -m hmas.qos`."""

from typing import assert_never

from hmas.contracts.control_agents import (
    GatewayReported,
    PublishLong,
    PublishShort,
    QosEffect,
    QosEvent,
    WorkerReported,
)
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.qos.agent import QosAgent
from hmas.qos.settings import QosSettings
from hmas.qos.shell import SERVICE, QosServer, ViewMetrics
from hmas.runtime.agent_service import AgentService
from hmas.runtime.lifecycle import Stop, run_service
from hmas.runtime.rpc import RpcServer
from hmas.wire import subjects
from hmas.wire.v1 import observe_pb2_grpc


async def serve(settings: QosSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`."""
    agent, metrics, rpc = QosAgent(settings.qos_config()), ViewMetrics(), RpcServer()
    observe_pb2_grpc.add_QosServicer_to_server(QosServer(agent), rpc.server)  # type: ignore[no-untyped-call]

    def execute(effect: QosEffect) -> None:
        match effect:
            case PublishShort(view):
                service.bus.publish(subjects.qos_short(view.pool), view)
                metrics.show(view)
            case PublishLong(view):
                service.bus.publish(subjects.qos_long(view.pool), view)
            case _:
                assert_never(effect)

    service: AgentService[QosEvent, QosEffect] = AgentService("qos", instance, settings, agent, execute)
    bus, post = service.bus, service.post
    bus.subscribe(subjects.ALL_WORKER_TELEMETRY, WorkerTelemetry, lambda t: post(WorkerReported(t)))
    bus.subscribe(subjects.ALL_GATEWAY_TELEMETRY, GatewayTelemetry, lambda t: post(GatewayReported(t)))
    bus.subscribe(subjects.ALL_WORKERS, WorkerHeartbeat, lambda h: post(HeartbeatReceived(h)))

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    await service.run(stop, start=start, finish=lambda: rpc.stop(0.5))


def main() -> None:
    run_service("qos", QosSettings, serve)


if __name__ == "__main__":
    main()
