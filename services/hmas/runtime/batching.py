"""The shell of an agent that batches calls for a model: runs the model in a thread, keeps each call's time budget, and
serves until the process ends."""

import asyncio
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from itertools import count
from time import thread_time
from typing import Any, Generic, Protocol, TypeVar, assert_never

import structlog
from prometheus_client import Counter, Histogram

from hmas.contracts.agent import Agent
from hmas.contracts.cognition import (
    Answer,
    AnswerCall,
    BatchFailed,
    BatchReturned,
    CallReceived,
    Item,
    Result,
    Row,
    RunBatch,
)
from hmas.contracts.control_agents import TimerTicked
from hmas.runtime.background import USUAL, background_thread
from hmas.runtime.bus import Bus
from hmas.runtime.host import AgentHost
from hmas.runtime.lifecycle import StopSignal, run_until
from hmas.runtime.ops import ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.rpc import RpcServer
from hmas.runtime.settings import RuntimeSettings
from hmas.runtime.step_failures import StepFailures
from hmas.wire.subjects import QUERY_EFFECTS

log = structlog.get_logger()
REPLY_MARGIN_S = 0.005  # part of the time until the caller's deadline that is kept for sending the reply
TIMER_RETRY_S = 0.001  # pause before the agent is ticked again, because its clock may lag the event loop's
SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

Ev_contra = TypeVar("Ev_contra", contravariant=True)


class BatchingAgent(Agent[Ev_contra, RunBatch[Row] | AnswerCall[Answer]], Protocol[Ev_contra, Row, Answer]):
    """An agent that batches calls for a model. It must accept the events `CallReceived`, `BatchReturned`, `BatchFailed`
    and `TimerTicked`. `fallbacks` counts, by reason, the items that were answered without the model.
    """

    fallbacks: Counts[str]


class BatchingShell(Generic[Item, Row, Result, Answer]):
    """Runs a batching agent and its model. A call is answered within `budget_s` seconds, or by its caller's deadline if
    that is earlier. If the model is late or fails, the agent answers without it; this is never an error to the caller.

    `seconds` measures the model's batches, `fallbacks` counts items answered without the model.
    """

    def __init__(
        self,
        agent: BatchingAgent[CallReceived[Item] | BatchReturned[Result] | BatchFailed | TimerTicked, Row, Answer],
        model: Callable[[Sequence[Row]], Sequence[Result]],
        budget_s: float,
        seconds: Histogram,
        fallbacks: Counter,
        recorder: Recorder | None = None,
        niceness: int = USUAL,
    ) -> None:
        self._recorder = recorder
        self._agent = agent
        self._model = model
        self._budget_s = budget_s
        self._seconds = seconds
        self._fallbacks = fallbacks
        observe = recorder.observe if recorder is not None else None
        self._failures = StepFailures()
        self._host: AgentHost[Any, RunBatch[Row] | AnswerCall[Answer]] = AgentHost(
            agent, self._execute, failed=self._failed, observe=observe
        )
        self._calls: dict[int, asyncio.Future[tuple[Answer, ...]]] = {}
        self._numbers = count(1)
        self._thread = background_thread("model", niceness)
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: Counts[str] = Counts()

    def post(self, event: object) -> None:
        self._host.post(event)

    def _failed(self, cause: object, error: Exception) -> None:
        self._failures.report(cause, error)
        if isinstance(cause, CallReceived):  # the agent may never answer it, and its caller goes on without
            self._calls[cause.call].set_exception(error)

    async def warm_up(self, row: Row) -> None:
        """Runs the model once on `row`, because the first batch is slow: models allocate memory or load only then."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._model, [row])
        except Exception as error:  # the model may work later, so that the service starts all the same
            log.warning("warm_up_failed", error=repr(error))

    async def answers(self, items: tuple[Item, ...], remaining_s: float | None) -> tuple[Answer, ...]:
        """Returns one answer for each item, in order. `remaining_s`: seconds until the caller's deadline, None if there
        is none."""
        budget_s = self._budget_s if remaining_s is None else min(self._budget_s, remaining_s - REPLY_MARGIN_S)
        budget_s = max(0.0, budget_s)
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        self._calls[number] = loop.create_future()
        self.post(CallReceived(number, items, budget_s))
        loop.call_later(budget_s, self._expire, number)
        try:
            return await self._calls[number]
        finally:
            del self._calls[number]

    async def serve(
        self,
        rpc: RpcServer,
        service: str,
        address: tuple[str, int],
        bus: Bus,
        settings: RuntimeSettings,
        stop: StopSignal,
    ) -> None:
        """Serves the gRPC service `service` at `address` (host, port) until `stop` is set. It answers requests also
        while NATS cannot be reached."""
        if self._recorder is not None:
            bus.answer(QUERY_EFFECTS, self._recorder.answer)
        await rpc.start(*address, [service])
        ops = ops_server(settings.ops_host, settings.ops_port, lambda: True, token=settings.ops_token())
        await ops.start()
        try:
            await run_until(stop, bus.run())
        finally:
            await rpc.stop(0.5)
            await self.close()
            await bus.close()
            await ops.stop()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._recorder is not None:
            self._recorder.close()

    def _expire(self, number: int) -> None:
        if number in self._calls and not self._calls[number].done():
            self.post(TimerTicked())
            asyncio.get_running_loop().call_later(TIMER_RETRY_S, self._expire, number)

    def _execute(self, effect: RunBatch[Row] | AnswerCall[Answer]) -> None:
        match effect:
            case RunBatch():
                task = asyncio.create_task(self._run(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case AnswerCall(call, answers):
                future = self._calls.get(call)
                if future is not None and not future.done():
                    future.set_result(answers)
                self._count_fallbacks()
            case _:
                assert_never(effect)

    async def _run(self, effect: RunBatch[Row]) -> None:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        results, error, cpu_s = await loop.run_in_executor(self._thread, self._compute, effect.rows)
        event: BatchReturned[Result] | BatchFailed
        if error is None:
            event = BatchReturned(effect.batch, results, cpu_s)
        else:
            log.warning("batch_failed", error=repr(error), rows=len(effect.rows))
            event = BatchFailed(effect.batch, repr(error), cpu_s)
        self._seconds.observe(loop.time() - started_s)
        self.post(event)

    def _compute(self, rows: Sequence[Row]) -> tuple[tuple[Result, ...], Exception | None, float]:
        """Runs in the model's thread. Returns the results, what the model raised, and its CPU time in s."""
        began_s = thread_time()
        try:
            return tuple(self._model(rows)), None, thread_time() - began_s
        except Exception as error:  # any exception of a model fails its batch, but must not end the service
            return (), error, thread_time() - began_s

    def _count_fallbacks(self) -> None:
        for reason, total in self._agent.fallbacks.items():
            self._fallbacks.labels(reason).inc(total - self._counted[reason])
            self._counted[reason] = total
