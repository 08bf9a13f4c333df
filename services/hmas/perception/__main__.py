"""Wiring: `python -m hmas.perception`."""

import structlog

from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.perception.agent import PerceptionAgent
from hmas.perception.metrics import PerceptionMetrics
from hmas.perception.server import SERVICE, PerceptionServer
from hmas.perception.settings import PerceptionSettings
from hmas.perception.shell import WARM_UP, PerceptionShell
from hmas.runtime.bus import Bus
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.runtime.recorder import Recorder
from hmas.runtime.rpc import RpcServer
from hmas.runtime.security import security_of
from hmas.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


async def serve(settings: PerceptionSettings, instance: str, stop: StopSignal) -> None:
    """Runs the perception service until `stop` is set. It needs NATS only to teach the prior; without NATS it answers
    requests all the same."""
    source, backend = settings.backend()
    log.info("backend", backend=settings.perception_backend, version=backend.version)
    config = settings.perception_config(backend.version, source)
    recorder = Recorder(AgentOrigin(Role.PERCEPTION, instance, config), settings)
    agent = PerceptionAgent(config)
    metrics, rpc, bus = PerceptionMetrics(), RpcServer(security_of(settings)), Bus(settings, instance)
    shell = PerceptionShell(agent, backend, settings.perception_budget_s, metrics, recorder)
    server = PerceptionServer(shell, metrics)
    cognition_pb2_grpc.add_PerceptionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    bus.follow(Role.PERCEPTION, shell.post)
    await shell.warm_up(WARM_UP)
    await shell.serve(rpc, SERVICE, (settings.grpc_host, settings.grpc_port), bus, settings, stop)


def main() -> None:
    run_service("perception", PerceptionSettings, serve)


if __name__ == "__main__":
    main()
