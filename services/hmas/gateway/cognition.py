"""The shell of the cognition queue: carries out its effects as gRPC calls, timers and metrics, and posts the answers
of perception and prediction to it as events."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, assert_never

import grpc
import structlog

from hmas.contracts.gateway import RequestAnnotated
from hmas.contracts.questions import (
    AnnotateBatch,
    AskPerception,
    AskPrediction,
    BatchDue,
    CognitionFailed,
    CognitionQueueEffect,
    CognitionQueueEvent,
    FallBack,
    FallbackReason,
    KindQuery,
    PerceptionAnswered,
    PredictionAnswered,
    PredictionQuery,
    Question,
    StartBatchAt,
)
from hmas.contracts.request import Cost, Tags
from hmas.gateway.agent import CognitionQueue, CognitionQueueConfig
from hmas.gateway.metrics import COGNITION_FALLBACKS, COGNITION_SECONDS
from hmas.runtime.host import AgentHost
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.rpc import open_channel
from hmas.runtime.security import OPEN, MeshSecurity
from hmas.runtime.step_failures import StepFailures
from hmas.wire.codec import WireError, from_message, to_message
from hmas.wire.v1 import cognition_pb2 as pb
from hmas.wire.v1 import cognition_pb2_grpc

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CognitionConfig:
    """Addresses of perception and prediction as host:port. If either is empty, cognition is off."""

    perception_address: str
    prediction_address: str
    queue: CognitionQueueConfig = field(default_factory=CognitionQueueConfig)
    security: MeshSecurity = OPEN


class CognitionShell:
    """Asks perception and prediction about requests and calls `annotated` for each one that they answered.

    For a request that falls back to the prior nothing is called.
    """

    def __init__(self, config: CognitionConfig, annotated: Callable[[RequestAnnotated], None]) -> None:
        enabled = bool(config.perception_address and config.prediction_address)
        self._annotated = annotated
        self._timeout_s = config.queue.timeout_s
        self._host: AgentHost[CognitionQueueEvent, CognitionQueueEffect] = AgentHost(
            CognitionQueue(config.queue, enabled=enabled), self._execute, failed=StepFailures().report
        )
        self._calls: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._failing = False
        self._lines = LogRateLimit()
        self._config = config
        self._metadata = config.security.call_metadata()
        self._channels: list[grpc.aio.Channel] = []
        if enabled:
            self._open()
            if config.security.tls is not None:
                config.security.tls.certificate.renewed.append(self._open)
        else:
            log.warning(
                "cognition_off",
                effect="requests are scheduled by the prior: set HMAS_PERCEPTION_ADDRESS and HMAS_PREDICTION_ADDRESS",
            )

    def _open(self) -> None:
        """Opens the channels, and at a new certificate opens them again; calls on those before still end."""
        config, before = self._config, self._channels
        addresses = (config.perception_address, config.prediction_address)
        self._channels = [open_channel(address, config.security) for address in addresses]
        self._perceive = cognition_pb2_grpc.PerceptionStub(self._channels[0]).Perceive  # type: ignore[no-untyped-call]
        self._predict = cognition_pb2_grpc.PredictionStub(self._channels[1]).Predict  # type: ignore[no-untyped-call]
        for channel in before:
            task = asyncio.create_task(channel.close(grace=self._timeout_s))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    def post(self, event: CognitionQueueEvent) -> None:
        """Hands an event to the cognition queue and carries out its effects, without waiting for any answer."""
        self._host.post(event)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels))

    def _execute(self, effect: CognitionQueueEffect) -> None:
        match effect:
            case StartBatchAt(at_s):
                delay_s = max(0.0, at_s - monotonic())
                self._timer = asyncio.get_running_loop().call_later(delay_s, self.post, BatchDue())
            case AskPerception(call, questions):
                perceive = pb.PerceiveBatch(requests=[_perceive_request(each) for each in questions])
                self._start(call, self._perceive, perceive, _tags)
            case AskPrediction(call, queries):
                predict = pb.PredictBatch(
                    requests=[_predict_request(each, kind) for each in queries for kind in each.kinds]
                )
                self._start(call, self._predict, predict, _costs)
            case AnnotateBatch(answers, took_s):
                self._failing = False
                COGNITION_SECONDS.observe(took_s)
                for answer in answers:
                    self._annotated(answer)
            case FallBack():
                self._fall_back(effect)
            case _:
                assert_never(effect)

    def _start(self, call: int, method: Any, message: Any, answered: Callable[[int, Any], CognitionQueueEvent]) -> None:
        task = asyncio.create_task(self._ask(call, method, message, answered))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _ask(
        self, call: int, method: Any, message: Any, answered: Callable[[int, Any], CognitionQueueEvent]
    ) -> None:
        try:
            reply = await method(message, timeout=self._timeout_s, metadata=self._metadata)
            if reply is None:  # gRPC returns None for bytes that it cannot parse
                raise WireError("cognition's reply is not a valid protobuf message")
            event = answered(call, reply)
        except grpc.RpcError as error:
            event = _failed(call, error)
        except WireError as error:
            event = CognitionFailed(call, FallbackReason.MALFORMED, str(error))
        self.post(event)

    def _fall_back(self, effect: FallBack) -> None:
        """Counts the requests and logs the reason: each malformed answer, but other failures only when they begin, so
        that there is not a line for every batch."""
        COGNITION_FALLBACKS.labels(effect.reason.value).inc(len(effect.request_ids))
        if effect.reason is FallbackReason.MALFORMED:
            log.warning("cognition_malformed", error=effect.error)
        elif effect.error and not self._failing:
            self._failing = True
            self._lines.warn("cognition_failed", reason=effect.reason.value, error=effect.error,
                             effect="requests are scheduled by the prior until cognition answers")  # fmt: skip


def _failed(call: int, error: grpc.RpcError) -> CognitionFailed:
    """A call that got no answer, in one line: gRPC's own text is a traceback of several."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return CognitionFailed(call, FallbackReason.DOWN, str(error)[:200])
    late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    told = f"{error.code().name}: {error.details()}"
    return CognitionFailed(call, FallbackReason.LATE if late else FallbackReason.DOWN, told[:200])


def _tags(call: int, reply: Any) -> PerceptionAnswered:
    return PerceptionAnswered(call, tuple(from_message(Tags, message) for message in reply.tags))


def _costs(call: int, reply: Any) -> PredictionAnswered:
    return PredictionAnswered(call, tuple(from_message(Cost, message) for message in reply.costs))


def _perceive_request(question: Question) -> pb.PerceiveRequest:
    request = question.request
    return pb.PerceiveRequest(
        request_id=request.id,
        text=question.text,
        prompt_tokens=request.prompt_tokens,
        model=request.model,
        tenant=request.tenant,
        max_tokens=request.max_tokens,
        slo=to_message(request.slo),
        slo_stated=request.slo_stated,
        importance=request.importance,
    )


def _predict_request(query: PredictionQuery, asked: KindQuery) -> pb.PredictRequest:
    request = query.question.request
    return pb.PredictRequest(
        request_id=request.id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=query.tags.output_tokens,
        model=asked.kind.model or query.pool,
        worker=asked.worker,
        hardware=asked.kind.hardware,
        running=asked.running,
        waiting=asked.waiting,
        kv_usage=asked.kv_usage,
        task=query.tags.task,
    )
