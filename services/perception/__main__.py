"""Shell: `python -m services.perception`."""

import asyncio

import structlog

from services.contracts.governance import GatewayReported
from services.contracts.telemetry import GatewayTelemetry
from services.perception.agent import PerceptionAgent
from services.perception.server import SERVICE, PerceptionServer
from services.perception.settings import PerceptionSettings
from services.runtime.bus import Bus
from services.runtime.lifecycle import Stop, run_service
from services.runtime.ops import ops_server
from services.runtime.rpc import RpcServer
from services.wire import subjects
from services.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


async def serve(settings: PerceptionSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`. NATS only teaches the prior; without it requests are answered all the same."""
    source, backend = settings.backend()
    log.info("backend", backend=settings.perception_backend, version=backend.version)
    agent = PerceptionAgent(settings.perception_config(backend.version, source))
    server, rpc, bus = (
        PerceptionServer(agent, backend, settings.perception_budget_s),
        RpcServer(),
        Bus(settings, instance),
    )
    cognition_pb2_grpc.add_PerceptionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    bus.subscribe(subjects.ALL_GATEWAY_TELEMETRY, GatewayTelemetry, lambda t: server.post(GatewayReported(t)))
    await server.warm_up()
    await rpc.start(settings.grpc_host, settings.grpc_port, [SERVICE])
    ops = ops_server(settings.ops_host, settings.ops_port, lambda: True)
    await ops.start()
    tasks = [asyncio.create_task(bus.run()), asyncio.create_task(stop.wait())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await rpc.stop(0.5)
        await server.close()
        await bus.close()
        await ops.stop()


def main() -> None:
    settings = PerceptionSettings()  # from the environment
    run_service("perception", settings, lambda instance, stop: serve(settings, instance, stop))


if __name__ == "__main__":
    main()
