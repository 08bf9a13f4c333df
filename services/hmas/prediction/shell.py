"""Shell: the Prediction service around its agent and a cost model in a thread of its own."""

from typing import Any

import grpc
from prometheus_client import Counter, Gauge, Histogram

from hmas.contracts.request import Cost, TaskType
from hmas.prediction.agent.agent import PredictionAgent, PredictItem
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.runtime.batching import SECONDS_BUCKETS, BatchingShell
from hmas.runtime.recorder import Recorder
from hmas.wire.codec import to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Prediction"].full_name
WARM_UP = CostQuery(
    prompt_tokens=100, output_tokens=100.0, model="llama-13b", hardware="A100", running=1, waiting=0, kv_usage=0.0,
    task=TaskType.UNKNOWN,
)  # fmt: skip
QUERIES = Counter("hmas_prediction_queries_total", "Costs predicted")
FALLBACKS = Counter("hmas_prediction_fallbacks_total", "Costs of the linear profile instead of the model", ["reason"])
SCALE = Gauge("hmas_prediction_scale", "Online correction of a worker's costs", ["worker", "cost"])
BATCH_SECONDS = Histogram("hmas_prediction_batch_seconds", "One batch in the cost model", buckets=SECONDS_BUCKETS)


class PredictionServer(cognition_pb2_grpc.PredictionServicer):
    """Late costs are the linear profile's, never an error."""

    def __init__(
        self, agent: PredictionAgent, model: CostModel, budget_s: float, recorder: Recorder | None = None
    ) -> None:
        self._agent = agent
        self.shell: BatchingShell[PredictItem, CostQuery, Cost, Cost] = BatchingShell(
            agent, model.predict, budget_s, BATCH_SECONDS, FALLBACKS, recorder
        )

    def show_scale(self, worker: str) -> None:
        ttft, tpot = self._agent.scale(worker)
        SCALE.labels(worker, "ttft").set(ttft)
        SCALE.labels(worker, "tpot").set(tpot)

    async def Predict(self, request: pb.PredictBatch, context: Any) -> pb.PredictReply:  # the RPC's name
        try:
            items = tuple(map(_item, request.requests))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        costs = await self.shell.answers(items, context.time_remaining())
        QUERIES.inc(len(costs))
        return pb.PredictReply(costs=map(to_message, costs))


def _item(message: pb.PredictRequest) -> PredictItem:
    """Raises ValueError for an unknown task type."""
    query = CostQuery(
        prompt_tokens=message.prompt_tokens,
        output_tokens=message.output_tokens,
        model=message.model,
        hardware=message.hardware,
        running=message.running,
        waiting=message.waiting,
        kv_usage=message.kv_usage,
        task=TaskType(message.task),
    )
    return PredictItem(message.request_id, message.worker, query)
