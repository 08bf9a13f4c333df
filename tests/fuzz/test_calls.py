"""Whatever comes over gRPC, perception and prediction answer on: with tags and costs, or INVALID_ARGUMENT."""

import logging
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.perception.agent import PerceptionAgent
from hmas.perception.agent.rules import RulesBackend
from hmas.perception.metrics import PerceptionMetrics
from hmas.perception.server import SERVICE as PERCEPTION
from hmas.perception.server import PerceptionServer
from hmas.perception.settings import PerceptionSettings
from hmas.perception.shell import PerceptionShell
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.metrics import PredictionMetrics
from hmas.prediction.server import SERVICE as PREDICTION
from hmas.prediction.server import PredictionServer
from hmas.prediction.settings import PredictionSettings
from hmas.prediction.shell import PredictionShell
from hmas.runtime.rpc import RpcServer
from hmas.wire.codec import to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc
from tests.conftest import PATIENCE_S
from tests.fuzz.mutations import ABSURD, mutated

CALLS = 10_000 if "HMAS_SOAK" in os.environ else 500
BUDGET_S = 0.5
pytestmark = pytest.mark.timeout(600)


@asynccontextmanager
async def serving() -> AsyncIterator[grpc.aio.Channel]:
    rpc, registry = RpcServer(), CollectorRegistry()
    backend, settings = RulesBackend(), PredictionSettings()
    perception_config = PerceptionSettings(ops_port=0).perception_config(backend.version, TagSource.RULES)
    perceptions, predictions = PerceptionMetrics(registry), PredictionMetrics(registry)
    perception = PerceptionShell(PerceptionAgent(perception_config), backend, BUDGET_S, perceptions)
    stand_in = settings.stand_in()
    agent = PredictionAgent(settings.prediction_config(), stand_in)
    prediction = PredictionShell(agent, settings.model(stand_in), stand_in, BUDGET_S, predictions)
    add: Any = cognition_pb2_grpc
    add.add_PerceptionServicer_to_server(PerceptionServer(perception, perceptions), rpc.server)
    add.add_PredictionServicer_to_server(PredictionServer(prediction), rpc.server)
    port = await rpc.start("127.0.0.1", 0, [PERCEPTION, PREDICTION])
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await rpc.stop(0.0)
    await perception.close()
    await prediction.close()


def question(rng: Random, kind: type) -> Any:
    """A request of a call with one absurd value or none."""
    if kind is pb.PerceiveRequest:
        values: dict[str, Any] = {
            "request_id": "r", "text": "Translate: hello", "prompt_tokens": 6, "model": "m", "tenant": "acme",
            "max_tokens": 9, "slo": to_message(Slo(6.0, 0.1)), "slo_stated": False, "importance": 0.75,
        }  # fmt: skip
    else:
        values = {
            "request_id": "r", "prompt_tokens": 1000, "output_tokens": 100.0, "model": "m", "worker": "w",
            "hardware": "A100", "running": 3, "waiting": 1, "kv_usage": 0.5, "task": TaskType.QA.value,
        }  # fmt: skip
    name = rng.choice(list(values))
    absurd = [v for v in ABSURD.get(type(values[name]), ()) if v not in (2**40 + 1,)]
    if absurd and rng.random() < 0.6:
        values[name] = rng.choice(absurd)
    return kind(**values)


async def test_nonsense_gets_invalid_argument_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    rng, ends = Random(22), Counter[str]()
    async with serving() as channel:
        calls = (
            (channel.unary_unary(f"/{PERCEPTION}/Perceive"), pb.PerceiveBatch, pb.PerceiveRequest),
            (channel.unary_unary(f"/{PREDICTION}/Predict"), pb.PredictBatch, pb.PredictRequest),
        )
        with caplog.at_level(logging.WARNING):
            for i in range(CALLS):
                call, batch, kind = calls[i % 2]
                data: bytes = batch(
                    requests=[question(rng, kind) for _ in range(rng.choice((0, 1, 3)))]
                ).SerializeToString()
                try:
                    await call(mutated(rng, data) if rng.random() < 0.5 else data, timeout=PATIENCE_S)
                    ends["answered"] += 1
                except grpc.aio.AioRpcError as error:
                    ends[error.code().name] += 1
        many = pb.PredictBatch(requests=[question(Random(1), pb.PredictRequest)] * 5000).SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError, match="at most 4096 requests"):
            await calls[1][0](many, timeout=PATIENCE_S)
        good = pb.PredictRequest(request_id="r", prompt_tokens=10, output_tokens=10.0, task="QA")
        reply = pb.PredictReply.FromString(
            await calls[1][0](pb.PredictBatch(requests=[good]).SerializeToString(), timeout=PATIENCE_S)
        )
        assert len(reply.costs) == 1
    print(dict(ends))
    assert set(ends) <= {"answered", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}  # the last: more than 32 MiB
    assert ends["answered"] > CALLS / 10
    assert ends["INVALID_ARGUMENT"] > CALLS / 10
    assert caplog.records == []
