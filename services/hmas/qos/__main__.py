"""Wiring: `python -m hmas.qos`."""

from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.qos.agent import QosAgent
from hmas.qos.metrics import QosMetrics
from hmas.qos.server import SERVICE, QosServer
from hmas.qos.settings import QosSettings
from hmas.qos.shell import QosShell
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.runtime.rpc import RpcServer
from hmas.runtime.security import security_of
from hmas.wire.v1 import observe_pb2_grpc


async def serve(settings: QosSettings, instance: str, stop: StopSignal) -> None:
    """Runs the QoS service until `stop` is set."""
    config = settings.qos_config()
    origin = AgentOrigin(Role.QOS, instance, config)
    agent, rpc = QosAgent(config), RpcServer(security_of(settings))
    observe_pb2_grpc.add_QosServicer_to_server(QosServer(agent), rpc.server)  # type: ignore[no-untyped-call]
    shell = QosShell(origin, settings, agent, QosMetrics())
    service, past = shell.service, shell.past
    service.bus.follow(Role.QOS, service.post, receive={WorkerHeartbeat: past.introduction.hear})

    async def start() -> None:
        await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])

    await service.run(stop, start=start, finish=lambda: rpc.stop(0.5), beside=(past.keeper.run(),))


def main() -> None:
    run_service("qos", QosSettings, serve)


if __name__ == "__main__":
    main()
