"""Wiring: `python -m hmas.prediction`."""

import structlog

from hmas.contracts.routes import Role
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.laws.recording import AgentOrigin
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.metrics import PredictionMetrics
from hmas.prediction.server import SERVICE, PredictionServer
from hmas.prediction.settings import PredictionSettings
from hmas.prediction.shell import WARM_UP, PredictionShell
from hmas.runtime.bus import Bus
from hmas.runtime.lifecycle import StopSignal, run_service
from hmas.runtime.recorder import Recorder
from hmas.runtime.rpc import RpcServer
from hmas.runtime.security import security_of
from hmas.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


async def serve(settings: PredictionSettings, instance: str, stop: StopSignal) -> None:
    """Runs the prediction service until `stop` is set. It needs NATS only for the measurements that correct the model;
    without NATS it answers requests all the same."""
    stand_in = settings.stand_in()
    model = settings.model(stand_in)
    log.info("cost_model", model=settings.cost_model, version=model.version)
    config = settings.prediction_config()
    recorder = Recorder(AgentOrigin(Role.PREDICTION, instance, (config, stand_in.profiles)), settings)
    agent = PredictionAgent(config, stand_in)
    metrics, rpc, bus = PredictionMetrics(), RpcServer(security_of(settings)), Bus(settings, instance)
    shell = PredictionShell(agent, model, stand_in, settings.prediction_budget_s, metrics, recorder)
    server = PredictionServer(shell)
    cognition_pb2_grpc.add_PredictionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    bus.follow(Role.PREDICTION, shell.post, receive={WorkerTelemetry: shell.hear})
    await shell.warm_up(WARM_UP)
    await shell.serve(rpc, SERVICE, (settings.grpc_host, settings.grpc_port), bus, settings, stop)


def main() -> None:
    run_service("prediction", PredictionSettings, serve)


if __name__ == "__main__":
    main()
