"""Shell: the Perception service around its agent and a backend in a thread of its own."""

from typing import Any

import grpc
from prometheus_client import Counter, Histogram

from hmas.contracts.request import Slo, Tags
from hmas.perception.agent.agent import PerceiveItem, PerceptionAgent
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.runtime.batching import SECONDS_BUCKETS, BatchingShell
from hmas.runtime.recorder import Recorder
from hmas.wire.codec import WireError, from_message, to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

SERVICE = pb.DESCRIPTOR.services_by_name["Perception"].full_name
WARM_UP = PromptView("Summarize this text in one sentence.", 8, "", "", None)
PROMPTS = Counter("hmas_perception_prompts_total", "Prompts answered, by who made the tags", ["source"])
FALLBACKS = Counter("hmas_perception_fallbacks_total", "Prompts that the prior answered", ["reason"])
BATCH_SECONDS = Histogram("hmas_perception_batch_seconds", "One batch in the backend", buckets=SECONDS_BUCKETS)


class PerceptionServer(cognition_pb2_grpc.PerceptionServicer):
    """Late tags are the prior's, never an error."""

    def __init__(
        self, agent: PerceptionAgent, backend: Backend, budget_s: float, recorder: Recorder | None = None
    ) -> None:
        self.shell: BatchingShell[PerceiveItem, PromptView, Estimate | None, Tags] = BatchingShell(
            agent, backend.estimate, budget_s, BATCH_SECONDS, FALLBACKS, recorder
        )

    async def Perceive(self, request: pb.PerceiveBatch, context: Any) -> pb.PerceiveReply:  # the RPC's name
        try:
            items = tuple(map(_item, request.requests))
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        tags = await self.shell.answers(items, context.time_remaining())
        for each in tags:
            PROMPTS.labels(each.source.value).inc()
        return pb.PerceiveReply(tags=map(to_message, tags))


def _item(message: pb.PerceiveRequest) -> PerceiveItem:
    max_tokens = message.max_tokens if message.HasField("max_tokens") else None
    prompt = PromptView(message.text, message.prompt_tokens, message.model, message.tenant, max_tokens)
    slo = from_message(Slo, message.slo)
    return PerceiveItem(message.request_id, prompt, slo, message.slo_stated, message.importance)
