"""Shell: the Prediction service around its agent and a cost model in a thread of its own."""

import asyncio
from collections import Counter as Counts
from itertools import count
from typing import Any, assert_never

import grpc
import structlog
from prometheus_client import Counter, Gauge, Histogram

from services.contracts.governance import TimerTicked
from services.contracts.request import Cost, TaskType
from services.prediction.agent import (
    AnswerCall,
    BatchFailed,
    BatchPredicted,
    PredictCalled,
    PredictionAgent,
    PredictionEffect,
    PredictionEvent,
    PredictItem,
    RunBatch,
)
from services.prediction.backend import CostModel, CostQuery
from services.runtime.background import background_thread
from services.runtime.host import AgentHost
from services.wire.codec import to_message
from services.wire.v1 import cognition_pb2 as pb
from services.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()
SERVICE = pb.DESCRIPTOR.services_by_name["Prediction"].full_name
REPLY_MARGIN_S = 0.005  # of the caller's deadline, for the way back
TIMER_RETRY_S = 0.001  # the loop's clock may run ahead of the agent's
WARM_UP = CostQuery(
    prompt_tokens=100, output_tokens=100.0, model="", hardware="", running=1, waiting=0, kv_usage=0.0,
    task=TaskType.UNKNOWN,
)  # fmt: skip
QUERIES = Counter("hmas_prediction_queries_total", "Costs predicted")
FALLBACKS = Counter("hmas_prediction_fallbacks_total", "Costs of the linear profile instead of the model", ["reason"])
SCALE = Gauge("hmas_prediction_scale", "Online correction of a worker's costs", ["worker", "cost"])
BATCH_SECONDS = Histogram(
    "hmas_prediction_batch_seconds", "One batch in the cost model", buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
)


class PredictionServer(cognition_pb2_grpc.PredictionServicer):
    """A call is answered within `budget_s`, or earlier if its own deadline is; never by an error for late costs."""

    def __init__(self, agent: PredictionAgent, model: CostModel, budget_s: float) -> None:
        self._agent = agent
        self._model = model
        self._budget_s = budget_s
        self._host: AgentHost[PredictionEvent, PredictionEffect] = AgentHost(agent, self._execute)
        self._calls: dict[int, asyncio.Future[tuple[Cost, ...]]] = {}
        self._numbers = count(1)
        self._thread = background_thread("model")
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: Counts[str] = Counts()

    async def warm_up(self) -> None:
        """Runs the model once: the first batch allocates."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._model.predict, [WARM_UP])
        except Exception as error:  # a model that fails now may do better later; until then the profile answers
            log.warning("warm_up_failed", error=repr(error))

    def post(self, event: PredictionEvent) -> None:
        self._host.post(event)

    def show_scale(self, worker: str) -> None:
        ttft, tpot = self._agent.scale(worker)
        SCALE.labels(worker, "ttft").set(ttft)
        SCALE.labels(worker, "tpot").set(tpot)

    async def Predict(self, request: pb.PredictBatch, context: Any) -> pb.PredictReply:  # the RPC's name
        try:
            items = tuple(map(_item, request.requests))
        except ValueError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        remaining_s = context.time_remaining()
        budget_s = self._budget_s if remaining_s is None else min(self._budget_s, remaining_s - REPLY_MARGIN_S)
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        self._calls[number] = loop.create_future()
        self.post(PredictCalled(number, items, max(0.0, budget_s)))
        loop.call_later(max(0.0, budget_s), self._expire, number)
        try:
            costs = await self._calls[number]
        finally:
            del self._calls[number]
        return pb.PredictReply(costs=map(to_message, costs))

    def _expire(self, number: int) -> None:
        if number in self._calls and not self._calls[number].done():
            self.post(TimerTicked())
            asyncio.get_running_loop().call_later(TIMER_RETRY_S, self._expire, number)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _execute(self, effect: PredictionEffect) -> None:
        match effect:
            case RunBatch():
                task = asyncio.create_task(self._run(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case AnswerCall(call, costs):
                future = self._calls.get(call)
                if future is not None and not future.done():
                    future.set_result(costs)
                self._count(len(costs))
            case _:
                assert_never(effect)

    async def _run(self, effect: RunBatch) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        event: PredictionEvent
        try:
            costs = await loop.run_in_executor(self._thread, self._model.predict, effect.queries)
            event = BatchPredicted(effect.batch, tuple(costs))
        except Exception as error:  # whatever a model raises is a failed batch, never the service's end
            log.warning("batch_failed", error=repr(error), queries=len(effect.queries))
            event = BatchFailed(effect.batch, repr(error))
        BATCH_SECONDS.observe(loop.time() - started_s)
        self.post(event)

    def _count(self, costs: int) -> None:
        QUERIES.inc(costs)
        for reason, total in self._agent.fallbacks.items():
            FALLBACKS.labels(reason).inc(total - self._counted[reason])
            self._counted[reason] = total


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
