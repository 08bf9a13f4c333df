"""Shell: `python -m hmas.prediction`."""

import structlog

from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.routes import Role
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.laws.recording import AgentOrigin
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.settings import PredictionSettings
from hmas.prediction.shell import SERVICE, WARM_UP, PredictionServer
from hmas.runtime.bus import Bus
from hmas.runtime.lifecycle import Stop, run_service
from hmas.runtime.recorder import Recorder
from hmas.runtime.rpc import RpcServer
from hmas.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


async def serve(settings: PredictionSettings, instance: str, stop: Stop) -> None:
    """Serves until `stop`. NATS only corrects the model; without it requests are answered all the same."""
    model = settings.model()
    log.info("cost_model", model=settings.cost_model, version=model.version)
    config, linear = settings.prediction_config(), settings.linear_model()
    recorder = Recorder(AgentOrigin(Role.PREDICTION, instance, (config, linear.profiles)), settings)
    agent = PredictionAgent(config, linear)
    server, rpc, bus = (
        PredictionServer(agent, model, settings.prediction_budget_s, recorder),
        RpcServer(),
        Bus(settings, instance),
    )
    cognition_pb2_grpc.add_PredictionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]

    def learn(telemetry: WorkerTelemetry) -> None:
        if telemetry.finished:
            server.shell.post(WorkerReported(telemetry))
            server.show_scale(telemetry.worker)

    bus.follow(Role.PREDICTION, server.shell.post, receive={WorkerTelemetry: learn})
    await server.shell.warm_up(WARM_UP)
    await server.shell.serve(rpc, SERVICE, (settings.grpc_host, settings.grpc_port), bus, settings, stop)


def main() -> None:
    run_service("prediction", PredictionSettings, serve)


if __name__ == "__main__":
    main()
