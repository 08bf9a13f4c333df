"""The gateway's shell: carries out the agent's effects, and turns what workers send into events for the agent and bytes
for the clients.

A token frame costs a look-up, a list append and a wake-up of the task that writes to the client: no event, log or
metric, except for the first one.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Protocol, assert_never

import structlog

from hmas.contracts.gateway import (
    AttemptConcluded,
    AttemptHandedBack,
    ClientLeft,
    CognitionQueueEvent,
    FirstTokenRelayed,
    GatewayEffect,
    GatewayEvent,
    LoadReported,
    PublishGatewayTelemetry,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    SendAnnotate,
    SendCancel,
    SendRecall,
    SendSubmit,
    Settle,
    StreamChanged,
    ViewReceived,
    WorkerVanished,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Request
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.views import VShort
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.exchange import AttemptTrace, Exchange
from hmas.gateway.journal import RequestJournal, timeline_json
from hmas.gateway.metrics import LIVE_REQUESTS, RECALLS, SLOW_CLIENTS, WORKERS, count_settled, pool_instruments
from hmas.gateway.openai.body import Call
from hmas.gateway.openai.errors import ApiError, InvalidRequest, engine_error
from hmas.runtime.tracing import Attributes, Tracing
from hmas.wire.codec import WireError, to_message
from hmas.wire.execution import concluded_of, submit_message
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()

# Outcomes that are failures of the mesh and are logged; a refusal, or a client that went away, is none.
_TROUBLE = frozenset(
    {Outcome.NO_ENGINE, Outcome.WORKER_LOST, Outcome.ENGINE_ERROR, Outcome.INTERNAL, Outcome.TIMED_OUT}
)


class Streams(Protocol):
    """The methods of `WorkerStreams` that the gateway's shell calls; a test may pass another object with them."""

    def ensure(self, heartbeat: WorkerHeartbeat) -> None: ...

    def submit(self, worker: str, message: pb.Submit) -> None: ...

    def annotate(self, worker: str, message: pb.Annotate) -> None: ...

    def cancel(self, worker: str, request_id: str, attempt: int) -> None: ...

    def recall(self, worker: str, request_id: str, attempt: int) -> None: ...


@dataclass(frozen=True, slots=True)
class GatewayShellConfig:
    """Bounds of the gateway's shell.

    `max_buffered_bytes`: most bytes of one answer that wait for its client to read them; beyond, the request is
    cancelled. `journal`: number of ended requests that are kept for `hmas why`.
    """

    gateway: str
    max_buffered_bytes: int = 8 * 2**20
    journal: int = 4096


class GatewayShell:
    """Keeps the exchange of each request that has not ended, and connects the agent with workers and clients.

    `connect` must be called before the first request.
    """

    def __init__(
        self,
        config: GatewayShellConfig,
        directory: ModelDirectory,
        publish: Callable[[GatewayTelemetry], None],
        clock: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
    ) -> None:
        self._tracing = tracing
        self._config, self._directory, self._publish, self._clock = config, directory, publish, clock
        self._exchanges: dict[str, Exchange] = {}
        self._journal = RequestJournal(config.journal)
        self._connected: set[str] = set()
        LIVE_REQUESTS.set_function(lambda: len(self._exchanges))
        self._post: Callable[[GatewayEvent], None]
        self._streams: Streams
        self._post_cognition: Callable[[CognitionQueueEvent], None]

    def connect(
        self,
        post: Callable[[GatewayEvent], None],
        streams: Streams,
        post_cognition: Callable[[CognitionQueueEvent], None],
    ) -> None:
        self._post, self._streams, self._post_cognition = post, streams, post_cognition

    def _post_both(self, event: HeartbeatReceived | LoadReported | ViewReceived | WorkerVanished) -> None:
        self._post_cognition(event)
        self._post(event)

    @property
    def live(self) -> int:
        return len(self._exchanges)

    @property
    def workers_connected(self) -> int:
        return len(self._connected)

    # --- clients ---

    def open(self, call: Call, request: Request, client_id: str, traceparent: str) -> Exchange:
        """Hands a request to the agent; returns its exchange, which has already ended if the agent refused.

        Raises InvalidRequest if the body cannot be written as JSON again, because it is nested too deeply.
        """
        pool = self._directory.resolve(request.model) or request.model
        try:
            body = call.engine_body(pool)
        except TypeError as error:  # the JSON writer allows less nesting than the parser
            raise InvalidRequest(f"the body cannot be passed on to an engine, nest it less deeply: {error}") from None
        exchange = Exchange(
            call=call, request=request, client_id=client_id, traceparent=traceparent, pool=pool, body=body
        )
        self._exchanges[request.id] = exchange
        if self._tracing is not None:
            self._trace(self._tracing, exchange)
        content = "" if request.relegate else _content(request, call.path, body)
        self._post(RequestReceived(request, content, len(body)))
        return exchange

    def _trace(self, tracing: Tracing, exchange: Exchange) -> None:
        request = exchange.request
        attributes: Attributes = {
            "hmas.request": request.id,
            "hmas.tenant": request.tenant,
            "gen_ai.request.model": request.model,
            "gen_ai.usage.input_tokens": request.prompt_tokens,
        }
        exchange.span = tracing.start("gateway", "server", exchange.traceparent, attributes)
        exchange.traceparent = exchange.span.traceparent

    def leave(self, exchange: Exchange) -> None:
        """Ends the exchange because its client went away or does not read its answer; the request is cancelled if it
        has not ended."""
        exchange.leave()
        if exchange.request.id in self._exchanges:
            self._post(ClientLeft(exchange.request.id))

    def timeline(self, request_id: str) -> bytes | None:
        """Returns what happened to a request, as JSON, for `hmas why`; None if it is unknown.

        `request_id` is the mesh's id or the client's `X-Request-Id`. Known are requests that have not ended, and the
        last `journal` ended ones.
        """
        exchange = self._exchanges.get(request_id) or self._journal.find(request_id)
        if exchange is None:
            exchange = next((x for x in self._exchanges.values() if x.client_id == request_id), None)
        return None if exchange is None else timeline_json(exchange, self._config.gateway)

    # --- workers (StreamSink) ---

    def on_tokens(self, worker: str, message: pb.Tokens) -> None:
        exchange = self._exchanges.get(message.request_id)
        if exchange is None or exchange.attempt != message.attempt:
            return
        if exchange.first_s is None and exchange.request.stream:
            self._first(exchange)
        exchange.push(message.data)
        if exchange.size > self._config.max_buffered_bytes:
            self._overflow(exchange)

    def on_finished(self, worker: str, message: pb.Finished) -> None:
        exchange = self._exchanges.get(message.request_id)
        if exchange is None or exchange.attempt != message.attempt:
            return
        try:
            concluded = concluded_of(message)
        except WireError as error:
            reason = f"the gateway cannot decode how worker {worker} ended this request: {error}"
            concluded = AttemptConcluded(
                request_id=message.request_id,
                attempt=message.attempt,
                outcome=Outcome.INTERNAL,
                message=reason,
            )
        exchange.finished = message
        exchange.timeline = concluded.timeline
        self._attempt_over(exchange, concluded.outcome.value)
        self._post(concluded)

    def on_handback(self, worker: str, message: pb.Handback) -> None:
        exchange = self._exchanges.get(message.request_id)
        if exchange is not None and exchange.attempt == message.attempt:
            self._attempt_over(exchange, "handed_back")
        self._post(AttemptHandedBack(message.request_id, message.attempt))

    def on_load(self, worker: str, message: pb.Load) -> None:
        self._post_both(
            LoadReported(
                worker=worker,
                queued=message.queued,
                queued_tokens=message.queued_tokens,
                running=message.running,
                backlog_s=message.backlog_s,
                draining=message.draining,
            )
        )

    def on_connected(self, worker: str, connected: bool) -> None:
        if connected:
            self._connected.add(worker)
        else:
            self._connected.discard(worker)
        WORKERS.set(len(self._connected))
        log.info("worker_connected" if connected else "worker_disconnected", worker=worker)
        self._post(StreamChanged(worker, connected))

    def on_vanished(self, worker: str, reason: str) -> None:
        self._connected.discard(worker)
        WORKERS.set(len(self._connected))
        self._post_both(WorkerVanished(worker, reason))

    # --- the bus and cognition ---

    def on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._directory.hear(heartbeat)
        self._streams.ensure(heartbeat)
        self._post_both(HeartbeatReceived(heartbeat))

    def on_view(self, view: VShort) -> None:
        self._post_both(ViewReceived(view))

    def on_annotated(self, answer: RequestAnnotated) -> None:
        exchange = self._exchanges.get(answer.request_id)
        if exchange is not None:
            exchange.annotation = answer.annotation
            self._post(answer)

    # --- effects ---

    def execute(self, effect: GatewayEffect) -> None:
        match effect:
            case SendSubmit(request_id, worker, attempt, promised):
                self._submit(self._exchanges[request_id], worker, attempt, promised)
            case SendAnnotate(request_id, worker, attempt, annotation):
                message = pb.Annotate(request_id=request_id, attempt=attempt, annotation=to_message(annotation))
                self._streams.annotate(worker, message)
            case SendCancel(request_id, worker, attempt):
                self._streams.cancel(worker, request_id, attempt)
            case SendRecall(request_id, worker, attempt):
                self._exchanges[request_id].recalls += 1
                RECALLS.inc()
                self._streams.recall(worker, request_id, attempt)
            case Refuse():
                error = ApiError.of(
                    effect.outcome,
                    effect.message,
                    retry_after_s=effect.retry_after_s,
                    estimated_wait_s=effect.estimated_wait_s,
                    predicted_ttft_s=effect.predicted_ttft_s,
                )
                self._end(effect.request_id, effect.outcome, effect.message, 0, error)
            case Settle():
                self._settle(effect)
            case PublishGatewayTelemetry(telemetry):
                self._publish(telemetry)
                count_settled(self._known(telemetry.pool), telemetry)
            case _:
                assert_never(effect)

    def _submit(self, exchange: Exchange, worker: str, attempt: int, promised: bool) -> None:
        now_s = self._clock()
        if exchange.attempts and exchange.attempts[-1].ended_s is None:
            self._attempt_over(exchange, Outcome.WORKER_LOST.value)
        exchange.attempt, exchange.finished = attempt, None
        exchange.chunks.clear()
        exchange.size = 0
        exchange.attempts.append(AttemptTrace(number=attempt, worker=worker, sent_s=now_s))
        call, pool = exchange.call, self._directory.resolve(exchange.request.model)
        assert call is not None, "a request moves only before its first token"
        if (
            pool is not None and pool != exchange.pool
        ):  # the pool of this model name became known while the request was held
            exchange.pool, exchange.body = pool, call.engine_body(pool)
        request = exchange.request
        message = submit_message(
            request if request.model == exchange.pool else replace(request, model=exchange.pool),
            attempt,
            now_s,
            promised=promised,
            path=call.path,
            body=exchange.body,
            strip_usage=call.strip_usage,
            replay_output_tokens=call.replay_output_tokens,
            traceparent=exchange.traceparent,
        )
        self._streams.submit(worker, message)
        pool_instruments(exchange.pool).attempts.inc()
        if attempt == 1:
            self._post_cognition(QuestionAsked(Question(request, call.perceived_text(), worker)))

    def _settle(self, effect: Settle) -> None:
        exchange = self._exchanges[effect.request_id]
        finished = exchange.finished
        error: ApiError | None = None
        if effect.outcome is Outcome.FINISHED:
            if finished is not None and finished.data:
                exchange.direct = None  # so that the last bytes are written together with the end of the answer
                exchange.push(finished.data)
        elif effect.outcome is Outcome.ENGINE_REFUSED and finished is not None:
            error = engine_error(finished.status, finished.data)
        else:
            error = ApiError.of(effect.outcome, effect.message, retry_after_s=effect.retry_after_s)
        self._end(effect.request_id, effect.outcome, effect.message, effect.output_tokens, error)

    def _end(self, request_id: str, outcome: Outcome, message: str, tokens: int, error: ApiError | None) -> None:
        exchange = self._exchanges.pop(request_id)
        self._post_cognition(QuestionWithdrawn(request_id))
        now_s = exchange.settled_s = self._clock()
        if exchange.attempts and exchange.attempts[-1].ended_s is None:
            self._attempt_over(exchange, outcome.value)
        exchange.outcome, exchange.message, exchange.output_tokens = outcome, message, tokens
        exchange.finished = None
        self._drop_body(exchange)
        if not exchange.done:
            exchange.end(error)
        self._count(exchange, outcome, now_s)
        self._journal.keep(exchange)
        if exchange.span is not None:
            used = {"gen_ai.usage.output_tokens": tokens, "hmas.attempts": exchange.attempt}
            exchange.span.end(outcome.value, outcome in _TROUBLE, used)
        if outcome in _TROUBLE:
            log.warning("request_failed", request=request_id, client_request=exchange.client_id, outcome=outcome.value,
                        message=message, tenant=exchange.request.tenant, output_tokens=tokens)  # fmt: skip

    def _count(self, exchange: Exchange, outcome: Outcome, now_s: float) -> None:
        instruments = pool_instruments(self._known(exchange.pool))
        instruments.outcomes[outcome].inc()
        if exchange.output_tokens:
            instruments.output_tokens.inc(exchange.output_tokens)
        if exchange.first_s is not None:
            instruments.ttft.observe(exchange.first_s - exchange.request.arrival_s)
        if outcome is Outcome.FINISHED:
            instruments.total.observe(now_s - exchange.request.arrival_s)

    def _known(self, pool: str) -> str:
        """Returns the pool as a metric's label, or "" if no such pool is known: clients can invent any number of model
        names, and each label costs memory."""
        return pool if self._directory.resolve(pool) is not None else ""

    def _first(self, exchange: Exchange) -> None:
        """Records the first token and drops the kept body, because the request can no longer be sent again."""
        exchange.first_s = self._clock()
        if exchange.span is not None:
            exchange.span.event("first_token")
        self._drop_body(exchange)
        self._post(FirstTokenRelayed(exchange.request.id, exchange.attempt))

    def _overflow(self, exchange: Exchange) -> None:
        if exchange.request.stream:
            self.give_up(exchange)
        else:
            limit = self._config.max_buffered_bytes
            message = f"the answer is larger than {limit} bytes (HMAS_MAX_BUFFERED_BYTES): ask for a stream"
            exchange.end(ApiError.of(Outcome.ENGINE_ERROR, message))
            self._post(ClientLeft(exchange.request.id))

    def give_up(self, exchange: Exchange) -> None:
        """Cancels a request whose client does not read its answer."""
        SLOW_CLIENTS.inc()
        log.info("client_too_slow", request=exchange.request.id, buffered=exchange.size)
        self.leave(exchange)

    def _drop_body(self, exchange: Exchange) -> None:
        exchange.body, exchange.call = b"", None

    def _attempt_over(self, exchange: Exchange, outcome: str) -> None:
        attempt = exchange.attempts[-1]
        attempt.outcome, attempt.ended_s = outcome, self._clock()


def _content(request: Request, path: str, body: bytes) -> str:
    """Returns a digest of tenant, path and body, by which a refused request is recognised when it is sent again."""
    digest = blake2b(body, digest_size=16)
    digest.update(f"\0{request.tenant}\0{path}".encode())
    return digest.hexdigest()
