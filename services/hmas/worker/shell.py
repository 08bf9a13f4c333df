"""The worker's shell: turns what gateways, engines and timers do into events of the worker's agent, and carries out its
effects."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, assert_never

import structlog

from hmas.contracts.agent import Agent
from hmas.contracts.cadences import LIVE
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.request import Annotation
from hmas.contracts.worker import (
    Abort,
    Annotated,
    CancelRequested,
    Conclude,
    ControlExpired,
    CycleTicked,
    Dispatch,
    DrainStarted,
    EngineFailed,
    GatewayLost,
    Handback,
    HeartbeatDue,
    ProgressSampled,
    PublishHeartbeat,
    PublishTelemetry,
    RecallRequested,
    Reject,
    SteerEngine,
    Submitted,
    TopologySwitched,
    WorkerEffect,
    WorkerEvent,
)
from hmas.runtime.host import AgentHost
from hmas.runtime.tracing import Tracing
from hmas.wire.codec import from_message
from hmas.wire.execution import request_of
from hmas.wire.subjects import subject_of
from hmas.wire.v1 import execution_pb2 as pb
from hmas.worker.adapters.base import EngineAdapter
from hmas.worker.attempts import AttemptTable, HeldAttempt
from hmas.worker.metrics import WorkerMetrics
from hmas.worker.streams import ExecutionServer, GatewaySession

log = structlog.get_logger()
FLUSH_S = 2.0


class Publisher(Protocol):
    """The part of the message bus that a worker's shell uses."""

    def publish(self, subject: str, value: Any) -> None: ...


class WorkerShell:
    """Feeds the worker's agent with events and carries out its effects.

    All methods must be called on the event loop; none waits except `run` and `drain`.
    """

    def __init__(
        self,
        agent: Agent[WorkerEvent, WorkerEffect],
        server: ExecutionServer,
        bus: Publisher,
        metrics: WorkerMetrics,
        *,
        max_body_bytes: int,
        clock: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
        observe: Callable[[float, WorkerEvent, list[WorkerEffect]], None] | None = None,
    ) -> None:
        self._tracing = tracing
        self._server = server
        self._bus = bus
        self._metrics = metrics
        self._clock = clock
        self._attempts = AttemptTable(max_body_bytes)
        self._engines: Mapping[str, EngineAdapter] = {}
        self._host: AgentHost[WorkerEvent, WorkerEffect] = AgentHost(agent, self._execute, clock, observe=observe)
        self.post = self._host.post

    async def run(self, engines: Mapping[str, EngineAdapter]) -> None:
        """Serves requests on `engines`, by name, until it is cancelled."""
        self._engines = engines
        self._server.open(self)
        async with asyncio.TaskGroup() as tasks:
            for engine in engines.values():
                tasks.create_task(engine.run())
            tasks.create_task(self._keep_cycling())

    async def drain(self, grace_s: float) -> None:
        """Hands back the queued requests, waits up to `grace_s` seconds for the running ones, and ends those that still
        run then as failures."""
        self.post(DrainStarted())
        self.post(HeartbeatDue())
        try:
            async with asyncio.timeout(grace_s):  # wait_for may swallow a cancellation
                await self._attempts.empty.wait()
        except TimeoutError:
            log.warning("drain_cut_short", running=len(self._attempts))
        for attempt in list(self._attempts):
            self._let_go(attempt)
            message = f"the worker stopped before the answer was complete (grace period {grace_s:g} s): send it again"
            self.post(
                EngineFailed(
                    request_id=attempt.request_id,
                    outcome=Outcome.DRAINING,
                    message=message,
                    output_tokens=attempt.tokens,
                    retryable=False,
                )
            )
        await self._server.flush(FLUSH_S)

    # --- events --------------------------------------------------------------------------------------------------

    async def _keep_cycling(self) -> None:
        heartbeat_s = self._clock()
        while True:
            if self._clock() >= heartbeat_s:
                heartbeat_s = self._clock() + LIVE.heartbeat_s
                self.post(HeartbeatDue())
            progress = self._attempts.progress()
            if progress:
                self.post(ProgressSampled(progress))
            self.post(CycleTicked())
            await asyncio.sleep(LIVE.worker_cycle_s)

    def on_submit(self, session: GatewaySession, message: pb.Submit) -> None:
        held = self._attempts.get(message.request_id)
        if self._attempts.ended(message.request_id, message.attempt) or (held and held.number >= message.attempt):
            return  # a repetition
        if held is not None:  # its gateway gave the older attempt up
            self.post(CancelRequested(held.request_id, held.number))
        if not self._attempts.fits(message):
            reason = "the worker's memory for request bodies (HMAS_MAX_BODY_BYTES) is full: retry later"
            self._refuse(session, message, Outcome.POOL_QUEUE_FULL, reason)
            return
        request = request_of(message, self._clock())
        self._attempts.add(
            HeldAttempt(session, message, request, post=self.post, clock=self._clock, tracing=self._tracing)
        )
        self.post(Submitted(request, message.attempt, session.id, message.promised))

    def on_annotate(self, session: GatewaySession, message: pb.Annotate) -> None:
        self.post(Annotated(message.request_id, message.attempt, from_message(Annotation, message.annotation)))

    def on_cancel(self, session: GatewaySession, message: pb.Cancel) -> None:
        self.post(CancelRequested(message.request_id, message.attempt))

    def on_recall(self, session: GatewaySession, message: pb.Recall) -> None:
        self.post(RecallRequested(message.request_id, message.attempt))

    def on_gateway_lost(self, session: GatewaySession) -> None:
        self.post(GatewayLost(session.id))

    # --- effects -------------------------------------------------------------------------------------------------

    def _execute(self, effect: WorkerEffect) -> None:
        match effect:
            case Dispatch():
                self._dispatch(effect)
            case Abort():
                attempt = self._attempts.get(effect.request_id)
                if attempt is not None:
                    self._let_go(attempt)
            case Conclude():
                self._conclude(effect)
            case Reject():
                self._reject(effect)
            case Handback():
                attempt = self._attempts.take(effect.request_id, effect.attempt)
                if attempt is not None:
                    attempt.left("handed_back", False)
                    attempt.session.send("handback", pb.Handback(request_id=effect.request_id, attempt=effect.attempt))
            case PublishTelemetry(telemetry):
                self._metrics.observe(telemetry)
                self._bus.publish(subject_of(telemetry), telemetry)
            case PublishHeartbeat(heartbeat):
                self._publish_heartbeat(heartbeat)
            case SteerEngine():
                self._engines[effect.engine].steer(effect.n_run, effect.b_token)
            case TopologySwitched():
                self._metrics.switched(effect)
                log.info("topology_switched", before=effect.before, after=effect.after, queued=effect.queued,
                         reason=effect.reason)  # fmt: skip
            case ControlExpired():
                self._metrics.expired(effect)
                log.warning("control_expired", control=effect.control)
            case _:
                assert_never(effect)

    def _dispatch(self, effect: Dispatch) -> None:
        attempt = self._attempts.get(effect.request_id)
        if attempt is not None:
            attempt.start(self._engines[effect.engine], effect.urgency, effect.tpot_s)

    def _let_go(self, attempt: HeldAttempt) -> None:
        if attempt.adapter is not None:
            attempt.adapter.abort(attempt.request_id)
            attempt.adapter = None

    def _conclude(self, effect: Conclude) -> None:
        attempt = self._attempts.take(effect.request_id, effect.attempt)
        if attempt is not None:
            self._metrics.ended(effect.outcome)
            attempt.left(effect.outcome.value, effect.outcome not in (Outcome.FINISHED, Outcome.CANCELLED))
            attempt.session.send("finished", attempt.finished_message(effect))

    def _reject(self, effect: Reject) -> None:
        attempt = self._attempts.take(effect.request_id, effect.attempt)
        if attempt is not None:
            attempt.left(effect.outcome.value, False)
            self._refuse(attempt.session, attempt.submit, effect.outcome, effect.message, effect.retry_after_s)

    def _refuse(
        self,
        session: GatewaySession,
        submit: pb.Submit,
        outcome: Outcome,
        message: str,
        retry_after_s: float | None = None,
    ) -> None:
        self._metrics.ended(outcome)
        refusal = pb.Finished(
            request_id=submit.request_id,
            attempt=submit.attempt,
            outcome=outcome.value,
            message=message,
            retry_after_s=retry_after_s,
        )
        session.send("finished", refusal)

    def _publish_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._bus.publish(subject_of(heartbeat), heartbeat)
        load = pb.Load(
            queued=heartbeat.queued,
            queued_tokens=heartbeat.queued_tokens,
            running=heartbeat.running,
            backlog_s=heartbeat.backlog_s,
            draining=heartbeat.draining,
        )
        self._server.broadcast("load", load)
