"""The gateway's shell: it opens and ends the exchanges with clients, carries out the agent's effects, and tells the
agent what clients and workers do. `relay.py` carries out the runs."""

import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol, assert_never

import orjson
import structlog

from hmas.contracts.execution import GatewayMessage, Load, Submit, WorkerMessage
from hmas.contracts.gateway import (
    NO_VOLUME,
    ClientLeft,
    FromWorker,
    GatewayEffect,
    GatewayEvent,
    GoOn,
    KeysEnded,
    NoteGrant,
    PublishGatewayTelemetry,
    PublishUse,
    QueueTurn,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RouteChosen,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
    ViewReceived,
    Volume,
)
from hmas.contracts.job import StageLinked
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import CognitionQueueEvent, Question, QuestionAsked, QuestionWithdrawn
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Request
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.use import UseReport
from hmas.contracts.views import VShort
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.engines.engines import EngineDirectory
from hmas.gateway.engines.proxied import Proxy
from hmas.gateway.errors import ApiError, engine_error
from hmas.gateway.exchange import AttemptTrace, Exchange
from hmas.gateway.metrics import LIVE_REQUESTS, SLOW_CLIENTS, WORKERS
from hmas.gateway.openai.body import Call
from hmas.gateway.relay import EngineRelay
from hmas.gateway.witness import Witness

log = structlog.get_logger()


MAX_BUFFERED_BYTES = 8 * 2**20
FAILED = "the gateway failed at this request through a defect of its own; see `step_failed` in its log"


class Streams(Protocol):
    """The methods of `WorkerStreams` that the gateway's shell calls; a test may pass another object with them."""

    def ensure(self, heartbeat: WorkerHeartbeat) -> None: ...

    def send(self, worker: str, message: GatewayMessage) -> None: ...

    def is_local(self, worker: str) -> bool: ...


class GatewayShell:
    """Keeps the exchange of each request that has not ended, and connects the agent with clients, workers and the
    relay to engines. `max_buffered_bytes`: most bytes of one answer that wait for its client to read them, or for
    the end of an answer that is not streamed; beyond, the request is cancelled.

    `connect` must be called before the first request.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        engines: EngineDirectory,
        witness: Witness,
        publish: Callable[[GatewayTelemetry | UseReport], None],
        *,
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._engines, self._witness, self._publish = directory, engines, witness, publish
        self._max_buffered_bytes, self._clock = max_buffered_bytes, clock
        self._exchanges: dict[str, Exchange] = {}
        self.relay = EngineRelay(directory, engines, witness, max_buffered_bytes, clock)
        self._connected: set[str] = set()
        LIVE_REQUESTS.set_function(lambda: len(self._exchanges))
        self._post: Callable[[GatewayEvent], None]
        self._streams: Streams
        self._post_cognition: Callable[[CognitionQueueEvent], None]
        self._turn: Callable[[float, str], QueueTurn | None]

    def connect(
        self,
        post: Callable[[GatewayEvent], None],
        streams: Streams,
        post_cognition: Callable[[CognitionQueueEvent], None],
        turn: Callable[[float, str], QueueTurn | None] = lambda now_s, request_id: None,
    ) -> None:
        self._post, self._streams, self._post_cognition, self._turn = post, streams, post_cognition, turn
        self.relay.connect(post)

    def _post_both(self, event: HeartbeatReceived | FromWorker | ViewReceived | StreamChanged) -> None:
        self._post_cognition(event)
        self._post(event)

    @property
    def live(self) -> int:
        return len(self._exchanges)

    @property
    def workers_connected(self) -> int:
        return len(self._connected)

    # --- clients ---

    def open(
        self,
        call: Call,
        request: Request,
        client_id: str,
        traceparent: str,
        key: str = "",
        job: str = "",
        job_budget_s: float | None = None,
        proxy: Proxy | None = None,
        siblings: Volume = NO_VOLUME,
        *,
        admitted: bool = False,
    ) -> Exchange:
        """Hands a request to the agent; returns its exchange with what the agent answered: it has ended if the agent
        refused, and otherwise `worker` is where it waits, if at any. `job` is what the client calls its job, or empty,
        and `job_budget_s` what it allows for all of it, in s. `proxy` carries the request out, if the gateway itself
        does not. `siblings` and `admitted` are those of `RequestReceived`."""
        exchange = self._exchanges[request.id] = Exchange(
            call=call,
            request=request,
            client_id=client_id,
            traceparent=traceparent,
            pool=self._directory.resolve(request.model) or request.model,
            key=key,
            max_size=self._max_buffered_bytes,
            overflow=self.give_up,
            proxy=proxy,
            job_budget_s=job_budget_s,
        )
        self._witness.opened(exchange)
        content = "" if request.relegate else _content(request, call)
        self._post(RequestReceived(request, content, len(call.rest), job, job_budget_s, siblings, admitted))
        if exchange.call is not None:
            self._post_cognition(QuestionAsked(Question(request, call.text, exchange.worker)))
        return exchange

    def turn(self, exchange: Exchange) -> QueueTurn | None:
        """Returns when a waiting request will have its turn, None if it does not wait."""
        return self._turn(self._clock(), exchange.request.id)

    def leave(self, exchange: Exchange) -> None:
        """Ends the exchange because its client went away or does not read its answer; the request is cancelled if it
        has not ended."""
        exchange.leave()
        if exchange.request.id in self._exchanges:
            self._withdraw(exchange.request.id)

    def _withdraw(self, request_id: str) -> None:
        self._post(ClientLeft(request_id, self.relay.output_tokens(request_id)))

    def fail(self, request_id: str) -> None:
        """Ends a request, if it has not ended, with an internal error: a step that was about it has raised. The agent,
        whatever it knows of it, lets go of it as if its client had left."""
        if request_id in self._exchanges:
            self._withdraw(request_id)
            error = ApiError.of(Outcome.INTERNAL, FAILED)
            self._end(request_id, Outcome.INTERNAL, FAILED, self.relay.output_tokens(request_id), error)

    def give_up(self, exchange: Exchange) -> None:
        """Cancels a request whose client does not read its answer."""
        SLOW_CLIENTS.inc()
        log.info("client_too_slow", request=exchange.request.id, buffered=exchange.size)
        self.leave(exchange)

    def end_keys(self, holds: Callable[[str], bool]) -> None:
        """Ends the requests of API keys that are not valid any more; `holds` tells whether the key with an id is."""
        ended = {key for key in {exchange.key for exchange in self._exchanges.values()} if not holds(key)}
        if ended:
            log.info("keys_ended", keys=sorted(ended))
            self._post(KeysEnded(tuple(x.request.id for x in self._exchanges.values() if x.key in ended)))

    # --- workers (StreamSink) ---

    def on_connected(self, worker: str, connected: bool, silent_s: float) -> None:
        if connected:
            self._connected.add(worker)
            self._witness.connected(worker)
            self._engines.connected(worker, local=self._streams.is_local(worker))
        else:
            self._connected.discard(worker)
        WORKERS.set(len(self._connected))
        self._post_both(StreamChanged(worker, connected, silent_s))

    def on_message(self, worker: str, message: WorkerMessage) -> None:
        event = FromWorker(worker, message)
        if isinstance(message, Load):
            self._post_cognition(event)
        self._post(event)

    # --- the bus and cognition ---

    def on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._directory.hear(heartbeat)
        self._engines.hear(heartbeat)
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
            case ToWorker(worker, message):
                self._streams.send(worker, message)
                if isinstance(message, Submit):
                    self._submitted(worker, message)
            case StartRun(request_id=request_id):
                self.relay.start(self._exchanges[request_id], effect)
            case GoOn():
                self.relay.go_on(effect)
            case NoteGrant(worker, grant):
                self._witness.noted(worker, grant)
            case StopRun():
                self.relay.stop(effect)
            case Refuse():
                error = ApiError.of(
                    effect.outcome,
                    effect.message,
                    retry_after_s=effect.retry_after_s,
                    estimated_wait_s=effect.estimated_wait_s,
                    predicted_ttft_s=effect.predicted_ttft_s,
                )
                self._end(effect.request_id, effect.outcome, effect.message, 0, error)
            case StageLinked(request_id, stage):
                exchange = self._exchanges.get(request_id)
                if exchange is not None:
                    exchange.stage = stage
                    self._witness.linked(exchange)
            case RouteChosen(request_id):
                exchange = self._exchanges.get(request_id)
                if exchange is not None:
                    exchange.route = effect
            case Settle():
                self._settle(effect)
            case PublishGatewayTelemetry(telemetry):
                self._publish(telemetry)
                self._witness.judged(telemetry)
            case PublishUse(report):
                self._publish(report)
            case _:
                assert_never(effect)

    def _submitted(self, worker: str, submit: Submit) -> None:
        exchange = self._exchanges[submit.request.id]
        exchange.worker = worker
        exchange.attempts.append(AttemptTrace(submit.attempt, worker, self._clock()))
        self._witness.submitted(exchange)

    def _settle(self, effect: Settle) -> None:
        exchange = self._exchanges.get(effect.request_id)
        if exchange is None:
            return  # it has failed
        last, message = exchange.end_of_run, effect.message
        error: ApiError | None = None
        if effect.outcome is Outcome.FINISHED:
            if last is not None and last.data:
                exchange.direct = None  # so that the last bytes are written together with the end of the answer
                exchange.push(last.data)
        elif effect.outcome is Outcome.ENGINE_REFUSED and last is not None:
            error = engine_error(last.status, last.data)
        else:
            error = ApiError.of(effect.outcome, effect.message, retry_after_s=effect.retry_after_s)
            message = error.message
        self._end(effect.request_id, effect.outcome, message, effect.output_tokens, error)

    def _end(self, request_id: str, outcome: Outcome, message: str, tokens: int, error: ApiError | None) -> None:
        exchange = self._exchanges.pop(request_id)
        if exchange.annotation is None:
            self._post_cognition(QuestionWithdrawn(request_id))
        last = exchange.end_of_run
        exchange.settled_s = self._clock()
        exchange.outcome, exchange.message, exchange.output_tokens = outcome, message, tokens
        exchange.cached_tokens = last.usage.cached_tokens if last is not None else None
        exchange.end_of_run = None
        exchange.call = None
        if not exchange.done:
            exchange.end(error)
        exchange.proxy = None  # witnesses may keep the exchange, and need not keep the request's body
        self._witness.settled(exchange)

    async def close(self) -> None:
        """Closes the connections to all engines; runs that have not ended do so without a word."""
        await self._engines.close()


def _content(request: Request, call: Call) -> str:
    """Returns a digest of tenant, path, model and body, by which a refused request is recognised when it is sent
    again."""
    digest = blake2b(call.digest, digest_size=16)
    digest.update(orjson.dumps([request.tenant, call.form.path, call.model, call.xargs, call.seed]))
    return digest.hexdigest()
