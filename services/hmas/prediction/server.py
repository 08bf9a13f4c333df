"""The gRPC service Prediction."""

from typing import Any

import grpc

from hmas.contracts.request import TaskType
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.shell import PredictionShell
from hmas.wire.codec import batch, checked, to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Prediction"].full_name


class PredictionServer(cognition_pb2_grpc.PredictionServicer):
    """Answers gateways with the costs of their requests. If the cost model is late, the costs are those of the linear
    profile; that is never an error."""

    def __init__(self, shell: PredictionShell) -> None:
        self._shell = shell

    async def Predict(self, request: pb.PredictBatch, context: Any) -> pb.PredictReply:  # the RPC's name
        try:
            items = tuple(map(_item, batch(request.requests)))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        costs = await self._shell.answers(items, context.time_remaining())
        return pb.PredictReply(costs=map(to_message, costs))


def _item(message: pb.PredictRequest) -> PredictItem:
    """Reads one request of a call. Raises ValueError if its task type is unknown or a value of it is not allowed."""
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
    return checked(PredictItem(message.request_id, message.worker, checked(query)))
