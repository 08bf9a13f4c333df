"""Perception and prediction, batched, beside a request's way and never in it.

A request joins the batch that is being gathered. A batch goes `gather_s` after its first request if none went lately,
for until then the request itself is on its way, on the same cores; else `interval_s` after the last one while requests
queue, `idle_interval_s` while none does (then tags order nothing and only feed the statistics), or when a place among
the batches in flight is free: a call costs the same for one request as for thirty, and more than relaying fifty tokens.
What is late, down, malformed or too much gets no annotation, and
everyone downstream falls back to the prior.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from time import monotonic
from typing import Any

import grpc
import structlog

from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.request import Annotation, Cost, Request, Tags
from hmas.contracts.views import VShort
from hmas.gateway.metrics import COGNITION_FALLBACKS, COGNITION_SECONDS
from hmas.runtime.rpc import open_channel
from hmas.wire.codec import WireError, from_message, to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CognitionConfig:
    """Empty addresses switch cognition off. `interval_s`, `idle_interval_s`: least time between the starts of two
    batches while requests queue, and while none does. `gather_s`: least time before the start of one. `pause_s`:
    how long a service that failed is left alone."""

    perception_address: str
    prediction_address: str
    timeout_s: float = 0.05
    interval_s: float = 0.04
    idle_interval_s: float = 0.12
    gather_s: float = 0.004
    batch: int = 32
    batches_in_flight: int = 2
    queue: int = 1024
    pause_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Question:
    """One request, the text perception sees, and the worker it went to."""

    request: Request
    text: str
    worker: str


class WorkerFacts:
    """What prediction wants to know of a worker: hardware and load, from heartbeats, stream and QoS view."""

    def __init__(self) -> None:
        self._heartbeats: dict[str, WorkerHeartbeat] = {}
        self._load: dict[str, tuple[int, int]] = {}  # running, queued
        self._kv_usage: dict[str, float] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        self._heartbeats[heartbeat.worker] = heartbeat
        self._load[heartbeat.worker] = (heartbeat.running, heartbeat.queued)

    def load(self, worker: str, running: int, queued: int) -> None:
        self._load[worker] = (running, queued)

    def see(self, view: VShort) -> None:
        self._kv_usage |= {engine.worker: engine.kv_usage for engine in view.engines if engine.worker in self._load}

    @property
    def queueing(self) -> bool:
        return any(queued for _, queued in self._load.values())

    def forget(self, worker: str) -> None:
        self._heartbeats.pop(worker, None)
        self._load.pop(worker, None)
        self._kv_usage.pop(worker, None)

    def query(self, question: Question, tags: Tags) -> pb.PredictRequest:
        """Counts are a mean engine's."""
        heartbeat = self._heartbeats.get(question.worker)
        engines = heartbeat.engines if heartbeat is not None else ()
        running, queued = self._load.get(question.worker, (0, 0))
        share = max(1, len(engines))
        return pb.PredictRequest(
            request_id=question.request.id,
            prompt_tokens=question.request.prompt_tokens,
            output_tokens=tags.output_tokens,
            model=question.request.model,
            worker=question.worker,
            hardware=engines[0].hardware if engines else "",
            running=running // share,
            waiting=queued // share,
            kv_usage=self._kv_usage.get(question.worker, 0.0),
            task=tags.task,
        )


class Malformed(Exception):
    """An answer that does not fit its question."""


class Cognition:
    """Calls `annotated` for each request that cognition answered; says nothing of the others."""

    def __init__(
        self,
        config: CognitionConfig,
        facts: WorkerFacts,
        annotated: Callable[[str, Annotation], None],
        alive: Callable[[str], bool] = lambda request_id: True,
    ) -> None:
        self._config, self._facts, self._annotated, self._alive = config, facts, annotated, alive
        self._waiting: deque[Question] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._start_scheduled = False
        self._started_s = float("-inf")
        self._paused_until_s = 0.0
        self._down = False
        self._enabled = bool(config.perception_address and config.prediction_address)
        if self._enabled:
            self._channels = [open_channel(config.perception_address), open_channel(config.prediction_address)]
            self._perceive = cognition_pb2_grpc.PerceptionStub(self._channels[0]).Perceive  # type: ignore[no-untyped-call]
            self._predict = cognition_pb2_grpc.PredictionStub(self._channels[1]).Predict  # type: ignore[no-untyped-call]
        else:
            log.warning("cognition_off", effect="requests are scheduled by the historical prior")

    def offer(self, question: Question) -> None:
        """Never waits."""
        if not self._enabled:
            COGNITION_FALLBACKS.labels("off").inc()
        elif monotonic() < self._paused_until_s:
            COGNITION_FALLBACKS.labels("down").inc()
        elif len(self._waiting) >= self._config.queue:
            COGNITION_FALLBACKS.labels("full").inc()
        else:
            self._waiting.append(question)
            self._schedule()

    async def close(self) -> None:
        for task in self._in_flight:
            task.cancel()
        await asyncio.gather(*self._in_flight, return_exceptions=True)
        if self._enabled:
            await asyncio.gather(*(channel.close() for channel in self._channels))

    def _schedule(self) -> None:
        if self._start_scheduled or len(self._in_flight) >= self._config.batches_in_flight:
            return
        self._start_scheduled = True
        loop = asyncio.get_running_loop()
        interval_s = self._config.interval_s if self._facts.queueing else self._config.idle_interval_s
        if len(self._waiting) >= self._config.batch:
            loop.call_soon(self._start)
        else:
            loop.call_at(max(loop.time() + self._config.gather_s, self._started_s + interval_s), self._start)

    def _start(self) -> None:
        self._start_scheduled = False
        self._started_s = asyncio.get_running_loop().time()
        batch = self._next_batch()
        if not batch:
            return
        task = asyncio.create_task(self._ask(batch))
        self._in_flight.add(task)
        task.add_done_callback(self._returned)

    def _next_batch(self) -> list[Question]:
        """The oldest questions whose request has not ended meanwhile: an ended one needs no tags."""
        batch: list[Question] = []
        while self._waiting and len(batch) < self._config.batch:
            question = self._waiting.popleft()
            if self._alive(question.request.id):
                batch.append(question)
            else:
                COGNITION_FALLBACKS.labels("ended").inc()
        return batch

    def _returned(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if self._waiting:
            self._schedule()

    async def _ask(self, batch: list[Question]) -> None:
        started_s = monotonic()
        try:
            tags = await self._tags(batch)
            costs = await self._costs(batch, tags)
        except grpc.RpcError as error:
            self._failed(len(batch), error)
            return
        except (WireError, Malformed) as error:
            COGNITION_FALLBACKS.labels("malformed").inc(len(batch))
            log.warning("cognition_malformed", error=str(error))
            return
        self._down = False
        COGNITION_SECONDS.observe(monotonic() - started_s)
        for question, tag, cost in zip(batch, tags, costs, strict=True):
            self._annotated(question.request.id, Annotation(tag, cost))

    def _failed(self, count: int, error: grpc.RpcError) -> None:
        """One line when it goes down, not one a batch."""
        late = getattr(error, "code", lambda: None)() is grpc.StatusCode.DEADLINE_EXCEEDED
        COGNITION_FALLBACKS.labels("late" if late else "down").inc(count)
        if not late:
            self._paused_until_s = monotonic() + self._config.pause_s
        if not self._down:
            self._down = True
            log.warning("cognition_failed", late=late, error=str(error)[:200], effect="the prior stands in")

    async def _tags(self, batch: list[Question]) -> list[Tags]:
        requests = [
            pb.PerceiveRequest(
                request_id=each.request.id,
                text=each.text,
                prompt_tokens=each.request.prompt_tokens,
                model=each.request.model,
                tenant=each.request.tenant,
                max_tokens=each.request.max_tokens,
                slo=to_message(each.request.slo),
                slo_stated=each.request.slo_stated,
                importance=each.request.importance,
            )
            for each in batch
        ]
        reply = await self._perceive(pb.PerceiveBatch(requests=requests), timeout=self._config.timeout_s)
        tags = _answers(reply, "tags", batch)
        return [_sound_tags(each.request, from_message(Tags, m)) for each, m in zip(batch, tags, strict=True)]

    async def _costs(self, batch: list[Question], tags: list[Tags]) -> list[Cost]:
        requests = [self._facts.query(each, tag) for each, tag in zip(batch, tags, strict=True)]
        reply = await self._predict(pb.PredictBatch(requests=requests), timeout=self._config.timeout_s)
        return [_sound_cost(from_message(Cost, message)) for message in _answers(reply, "costs", batch)]


def _answers(reply: Any, field: str, batch: list[Question]) -> Any:
    if reply is None:  # gRPC's word for bytes that are no message
        raise Malformed("the reply is no protobuf message")
    answers = getattr(reply, field)
    if len(answers) != len(batch):
        raise Malformed(f"{len(answers)} answers to {len(batch)} requests")
    return answers


def _sound_tags(request: Request, tags: Tags) -> Tags:
    """A stated SLO stays as stated; whether only the last token is judged is the request's own nature."""
    slo = request.slo if request.slo_stated else replace(tags.slo, whole=request.slo.whole)
    numbers = (tags.output_tokens, tags.output_tokens_p90, tags.confidence, slo.ttft_s, slo.tpot_s)
    if not all(map(isfinite, numbers)) or min(numbers[0], numbers[1], slo.ttft_s, slo.tpot_s) <= 0.0:
        raise Malformed(f"tags {tags}")
    return replace(tags, slo=slo)


def _sound_cost(cost: Cost) -> Cost:
    if not (isfinite(cost.ttft_s) and isfinite(cost.tpot_s) and cost.ttft_s >= 0.0 and cost.tpot_s >= 0.0):
        raise Malformed(f"cost {cost}")
    return cost
