"""The gRPC service Perception."""

from typing import Any

import grpc

from hmas.contracts.request import Slo
from hmas.perception.agent.agent import PerceiveItem
from hmas.perception.agent.backend import PromptView
from hmas.perception.metrics import PerceptionMetrics
from hmas.perception.shell import PerceptionShell
from hmas.wire.codec import WireError, batch, checked, from_message, to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Perception"].full_name


class PerceptionServer(cognition_pb2_grpc.PerceptionServicer):
    """Answers gateways with the tags of their requests. If the backend is late, the tags are those of the prior; that
    is never an error."""

    def __init__(self, shell: PerceptionShell, metrics: PerceptionMetrics) -> None:
        self._shell = shell
        self._metrics = metrics

    async def Perceive(self, request: pb.PerceiveBatch, context: Any) -> pb.PerceiveReply:  # the RPC's name
        try:
            items = tuple(map(_item, batch(request.requests)))
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        tags = await self._shell.answers(items, context.time_remaining())
        for each in tags:
            self._metrics.prompts.labels(each.source.value).inc()
        return pb.PerceiveReply(tags=map(to_message, tags))


def _item(message: pb.PerceiveRequest) -> PerceiveItem:
    """Reads one request of a call. Raises WireError if a value of it is not allowed."""
    max_tokens = message.max_tokens if message.HasField("max_tokens") else None
    prompt = PromptView(
        text=message.text,
        prompt_tokens=message.prompt_tokens,
        model=message.model,
        tenant=message.tenant,
        max_tokens=max_tokens,
    )
    slo = from_message(Slo, message.slo)
    item = PerceiveItem(
        request_id=message.request_id,
        prompt=checked(prompt),
        slo=slo,
        slo_stated=message.slo_stated,
        importance=message.importance,
    )
    return checked(item)
