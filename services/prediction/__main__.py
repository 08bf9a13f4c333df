"""Shell: `python -m services.prediction`."""

import asyncio

import structlog

from services.contracts.governance import WorkerReported
from services.contracts.telemetry import WorkerTelemetry
from services.prediction.agent import PredictionAgent
from services.prediction.server import SERVICE, PredictionServer
from services.prediction.settings import PredictionSettings
from services.runtime.bus import Bus
from services.runtime.lifecycle import Stop, run_service
from services.runtime.ops import ops_server
from services.runtime.rpc import RpcServer
from services.wire import subjects
from services.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


async def serve(settings: PredictionSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`. NATS only corrects the model; without it requests are answered all the same."""
    model = settings.model()
    log.info("cost_model", model=settings.cost_model, version=model.version)
    agent = PredictionAgent(settings.prediction_config(), settings.linear_model())
    server, rpc, bus = (
        PredictionServer(agent, model, settings.prediction_budget_s),
        RpcServer(),
        Bus(settings, instance),
    )
    cognition_pb2_grpc.add_PredictionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]

    def learn(telemetry: WorkerTelemetry) -> None:
        if telemetry.finished:
            server.post(WorkerReported(telemetry))
            server.show_scale(telemetry.worker)

    bus.subscribe(subjects.ALL_WORKER_TELEMETRY, WorkerTelemetry, learn)
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
    settings = PredictionSettings()  # from the environment
    run_service("prediction", settings, lambda instance, stop: serve(settings, instance, stop))


if __name__ == "__main__":
    main()
