"""The service over a real gRPC connection."""

import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client import CollectorRegistry

from hmas.contracts.request import Cost
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.metrics import PredictionMetrics
from hmas.prediction.server import SERVICE, PredictionServer
from hmas.prediction.settings import PredictionSettings
from hmas.prediction.shell import WARM_UP, PredictionShell
from hmas.runtime.extras import CannotStart
from hmas.runtime.rpc import RpcServer, open_channel
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

REQUEST = pb.PredictRequest(
    request_id="r",
    prompt_tokens=1000,
    output_tokens=100.0,
    model="m",
    worker="w",
    hardware="A100",
    running=3,
    task="QA",
)


class StuckModel:
    """Answers when it is let go."""

    version = "stuck-1"

    def __init__(self) -> None:
        self.release = threading.Event()

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        self.release.wait()
        return [Cost(1.0, 1.0)] * len(queries)


Predict = Callable[..., grpc.aio.UnaryUnaryCall]


@asynccontextmanager
async def serving(
    model: CostModel | None = None, budget_s: float = 10.0, registry: CollectorRegistry | None = None
) -> AsyncIterator[Predict]:
    """Serves `model`, by default the shipped one."""
    settings = PredictionSettings()
    stand_in = settings.stand_in()
    agent = PredictionAgent(settings.prediction_config(), stand_in)
    metrics, rpc = PredictionMetrics(registry or CollectorRegistry()), RpcServer()
    shell = PredictionShell(agent, model or settings.model(stand_in), stand_in, budget_s, metrics)
    server = PredictionServer(shell)
    cognition_pb2_grpc.add_PredictionServicer_to_server(server, rpc.server)  # type: ignore[no-untyped-call]
    port = await rpc.start("127.0.0.1", 0, [SERVICE])
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield cognition_pb2_grpc.PredictionStub(channel).Predict  # type: ignore[no-untyped-call]
    await rpc.stop(0.0)
    await shell.close()


async def test_costs_in_the_batch_s_order() -> None:
    longer = pb.PredictRequest()
    longer.CopyFrom(REQUEST)
    longer.prompt_tokens = 2000
    async with serving(PredictionSettings().stand_in()) as predict:
        reply = await predict(pb.PredictBatch(requests=[REQUEST, longer]))
    assert reply.costs[0].ttft_s == pytest.approx(0.095)
    assert reply.costs[0].tpot_s == pytest.approx(0.016)
    assert reply.costs[1].ttft_s > reply.costs[0].ttft_s


async def test_the_shipped_model_is_the_default_and_warms_up_off_the_loop() -> None:
    settings = PredictionSettings()
    stand_in = settings.stand_in()
    model = settings.model(stand_in)
    agent = PredictionAgent(settings.prediction_config(), stand_in)
    shell = PredictionShell(agent, model, stand_in, 10.0, PredictionMetrics(CollectorRegistry()))
    await shell.warm_up(WARM_UP)
    await shell.close()
    assert model.version.startswith("catboost-")


async def test_a_stuck_model_is_answered_by_the_linear_profile_in_time() -> None:
    model = StuckModel()
    try:
        async with serving(model, budget_s=0.02) as predict:
            reply = await predict(pb.PredictBatch(requests=[REQUEST]), timeout=30.0)
    finally:
        model.release.set()
    assert reply.costs[0].ttft_s == pytest.approx(0.095)


def answered(registry: CollectorRegistry, model: str) -> float:
    return registry.get_sample_value("hmas_prediction_answers_total", {"model": model}) or 0.0


async def test_who_answered_is_counted() -> None:
    known, registry = pb.PredictRequest(), CollectorRegistry()
    known.CopyFrom(REQUEST)
    known.model = "Llama-3.1-8B"
    async with serving(registry=registry) as predict:
        await predict(pb.PredictBatch(requests=[known, REQUEST, known]))
    assert (answered(registry, "catboost"), answered(registry, "roofline")) == (2.0, 1.0)


async def test_a_model_that_is_late_has_not_answered() -> None:
    model, registry = StuckModel(), CollectorRegistry()
    try:
        async with serving(model, budget_s=0.02, registry=registry) as predict:
            await predict(pb.PredictBatch(requests=[REQUEST]), timeout=30.0)
    finally:
        model.release.set()
    assert (answered(registry, "stuck"), answered(registry, "linear")) == (0.0, 1.0)


async def test_an_unknown_task_type_is_an_invalid_argument() -> None:
    wrong = pb.PredictRequest()
    wrong.CopyFrom(REQUEST)
    wrong.task = "Juggling"
    async with serving() as predict:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await predict(pb.PredictBatch(requests=[wrong]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_settings_name_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown cost model 'oracle': choose one of "):
        PredictionSettings(cost_model="oracle")
    broken = tmp_path / "profiles.yaml"
    broken.write_text("- {model: x}\n")
    with pytest.raises(CannotStart, match="row 1 must have exactly the fields"):
        PredictionSettings(cost_profiles_file=broken).stand_in()
