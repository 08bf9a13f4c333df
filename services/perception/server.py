"""Shell: the Perception service around its agent and a backend in a thread of its own."""

import asyncio
from collections import Counter as Counts
from itertools import count
from typing import Any, assert_never

import grpc
import structlog
from prometheus_client import Counter, Histogram

from services.contracts.governance import TimerTicked
from services.contracts.request import Slo, Tags
from services.perception.agent import (
    AnswerCall,
    BatchEstimated,
    BatchFailed,
    PerceiveCalled,
    PerceiveItem,
    PerceptionAgent,
    PerceptionEffect,
    PerceptionEvent,
    RunBatch,
)
from services.perception.backend import Backend, PromptView
from services.runtime.background import background_thread
from services.runtime.host import AgentHost
from services.wire.codec import WireError, from_message, to_message
from services.wire.v1 import cognition_pb2 as pb
from services.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()
SERVICE = pb.DESCRIPTOR.services_by_name["Perception"].full_name
REPLY_MARGIN_S = 0.005  # of the caller's deadline, for the way back
TIMER_RETRY_S = 0.001  # the loop's clock may run ahead of the agent's
WARM_UP = PromptView("Summarize this text in one sentence.", 8, "", "", None)
PROMPTS = Counter("hmas_perception_prompts_total", "Prompts answered, by who made the tags", ["source"])
FALLBACKS = Counter("hmas_perception_fallbacks_total", "Prompts that the prior answered", ["reason"])
BATCH_SECONDS = Histogram(
    "hmas_perception_batch_seconds", "One batch in the backend", buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
)


class PerceptionServer(cognition_pb2_grpc.PerceptionServicer):
    """A call is answered within `budget_s`, or earlier if its own deadline is; never by an error for late tags."""

    def __init__(self, agent: PerceptionAgent, backend: Backend, budget_s: float) -> None:
        self._agent = agent
        self._backend = backend
        self._budget_s = budget_s
        self._host: AgentHost[PerceptionEvent, PerceptionEffect] = AgentHost(agent, self._execute)
        self._calls: dict[int, asyncio.Future[tuple[Tags, ...]]] = {}
        self._numbers = count(1)
        self._thread = background_thread("backend")
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: Counts[str] = Counts()

    async def warm_up(self) -> None:
        """Runs the backend once: the first batch allocates, and some backends load only then."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._backend.estimate, [WARM_UP])
        except Exception as error:  # a backend that fails now may do better later; until then the prior answers
            log.warning("warm_up_failed", error=repr(error))

    def post(self, event: PerceptionEvent) -> None:
        self._host.post(event)

    async def Perceive(self, request: pb.PerceiveBatch, context: Any) -> pb.PerceiveReply:  # the RPC's name
        try:
            items = tuple(map(_item, request.requests))
        except WireError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        remaining_s = context.time_remaining()
        budget_s = self._budget_s if remaining_s is None else min(self._budget_s, remaining_s - REPLY_MARGIN_S)
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        self._calls[number] = loop.create_future()
        self.post(PerceiveCalled(number, items, max(0.0, budget_s)))
        loop.call_later(max(0.0, budget_s), self._expire, number)
        try:
            tags = await self._calls[number]
        finally:
            del self._calls[number]
        return pb.PerceiveReply(tags=map(to_message, tags))

    def _expire(self, number: int) -> None:
        if number in self._calls and not self._calls[number].done():
            self.post(TimerTicked())
            asyncio.get_running_loop().call_later(TIMER_RETRY_S, self._expire, number)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _execute(self, effect: PerceptionEffect) -> None:
        match effect:
            case RunBatch():
                task = asyncio.create_task(self._run(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case AnswerCall(call, tags):
                future = self._calls.get(call)
                if future is not None and not future.done():
                    future.set_result(tags)
                self._count(tags)
            case _:
                assert_never(effect)

    async def _run(self, effect: RunBatch) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        event: PerceptionEvent
        try:
            estimates = await loop.run_in_executor(self._thread, self._backend.estimate, effect.prompts)
            event = BatchEstimated(effect.batch, tuple(estimates))
        except Exception as error:  # whatever a backend raises is a failed batch, never the service's end
            log.warning("batch_failed", error=repr(error), prompts=len(effect.prompts))
            event = BatchFailed(effect.batch, repr(error))
        BATCH_SECONDS.observe(loop.time() - started_s)
        self.post(event)

    def _count(self, tags: tuple[Tags, ...]) -> None:
        for each in tags:
            PROMPTS.labels(each.source.value).inc()
        for reason, total in self._agent.fallbacks.items():
            FALLBACKS.labels(reason).inc(total - self._counted[reason])
            self._counted[reason] = total


def _item(message: pb.PerceiveRequest) -> PerceiveItem:
    max_tokens = message.max_tokens if message.HasField("max_tokens") else None
    prompt = PromptView(message.text, message.prompt_tokens, message.model, message.tenant, max_tokens)
    slo = from_message(Slo, message.slo)
    return PerceiveItem(message.request_id, prompt, slo, message.slo_stated, message.importance)
