"""The routes whose requests are scheduled, as plain ASGI without a framework. All other paths go to the FastAPI
application.

Until the first byte of a streamed answer is sent, an error has its own HTTP status. If there is no token for
`comment_after_s` seconds, the stream begins with SSE comments that keep the connection alive; after that an error can
only be sent as an event of the stream.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import structlog
from starlette.middleware.cors import CORSMiddleware

from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.answer_report import slo_told
from hmas.gateway.errors import ApiError, ErrorShape, InvalidRequest
from hmas.gateway.exchange import Exchange
from hmas.gateway.group import ExchangeGroup
from hmas.gateway.http.bodies import BodyBounds, BodyDesk, BodyReader, ClientGone, Message, Receive, Send
from hmas.gateway.http.client_protocol import SCOPE_KEY, ClientProtocol
from hmas.gateway.metrics import INVALID
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.merging import AnswerMerger
from hmas.gateway.openai.tiers import with_service_tier
from hmas.gateway.reception import Arrival, Reception
from hmas.gateway.shell import GatewayShell
from hmas.gateway.tenants.store import TenantStore
from hmas.gateway.tenants.terms import QUEUE_STATUS, OutcomePlace
from hmas.gateway.usage_outcome import HeldUsage, with_outcome

log = structlog.get_logger()

COMMENT = b": keep-alive\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_JSON = (b"content-type", b"application/json")
# Headers of answers that a web page may read.
_SHOWN_HEADERS = (
    "retry-after", "x-request-id", "x-should-retry", "x-hmas-reason", "x-hmas-mode", "x-hmas-slo-clamped",
    "x-hmas-service-tier", "x-hmas-slo", "x-hmas-warning", "server-timing",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServerConfig:
    """Settings of the HTTP server; durations in seconds.

    `replay_field`: whether the body field `hmas_replay` is accepted. `follow_prompts`: whether beginnings of prompts
    are recognised. `comment_after_s`: time without a token after which a stream begins with keep-alive comments, one
    every `comment_every_s`. `stall_s`: how long a client may read nothing while its answer waits.
    """

    replay_field: bool = False
    follow_prompts: bool = True
    comment_after_s: float = 2.0
    comment_every_s: float = 15.0
    stall_s: float = 60.0
    body: BodyBounds = field(default_factory=BodyBounds)


def for_web_pages(app: Callable[..., Any], origins: tuple[str, ...]) -> Callable[..., Any]:
    """Returns an ASGI application that lets web pages of these origins use `app` (CORS). API keys come in headers that
    a page sets itself, so that no browser sends credentials of its own."""
    if not origins:
        return app
    return CORSMiddleware(
        app, allow_origins=origins, allow_methods=("GET", "POST"), allow_headers=("*",), expose_headers=_SHOWN_HEADERS
    )


class GatewayServer:
    """The gateway's ASGI application. It answers the routes whose requests are scheduled (`FORMS`) and hands every
    other request to `rest`."""

    def __init__(
        self,
        config: HttpServerConfig,
        shell: GatewayShell,
        tenants: TenantStore,
        directory: ModelDirectory,
        rest: Callable[..., Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._shell = config, shell
        self._reception = Reception(
            shell, tenants, directory, replay_field=config.replay_field, follow_prompts=config.follow_prompts
        )
        self._rest, self._clock = rest, clock
        self._desk = BodyDesk(config.body)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in FORMS:
            await self._rest(scope, receive, send)
            return
        answer = _Answer(scope, receive, send, self._config, self._desk, self._shell)
        try:
            await self._serve(answer)
        except ClientGone:
            pass
        except InvalidRequest as invalid:
            INVALID.labels(invalid.error.reason).inc()
            await answer.fail(invalid.error)
        except Exception:
            log.exception("request_failed", client_request=answer.client_id)
            await answer.fail(ApiError.of(Outcome.INTERNAL, "the gateway failed: its log has the reason"))
        finally:
            answer.unwatch()
            for exchange in answer.exchanges:
                self._shell.leave(exchange)  # does nothing if the request has ended

    async def _serve(self, answer: "_Answer") -> None:
        if answer.wants_unknown_status:
            message = "the header `x-hmas-queue-status` must be `comment` or `event`"
            raise InvalidRequest(message, "x-hmas-queue-status")
        if answer.scope["method"] != "POST":
            error = ApiError.of(Outcome.INVALID_REQUEST, "use the method POST for this path")
            await answer.fail(replace(error, status=405, allow="POST"))
            return
        exchange = await self._accept(answer)
        answer.watch(lambda: self._leave(answer))
        if exchange.stream:
            finished = await answer.stream(exchange)
        else:
            finished = await answer.plain(exchange)
        if not finished:
            for each in answer.exchanges:
                self._shell.give_up(each)
        if exchange.left:
            answer.abort()

    def _leave(self, answer: "_Answer") -> None:
        for exchange in answer.exchanges:
            self._shell.leave(exchange)

    async def _accept(self, answer: "_Answer") -> Exchange | ExchangeGroup:
        """Reads a request and hands it to the shell, which alone keeps its body from then on."""
        arrival_s = self._clock()
        caller = self._reception.authenticate(answer)
        data = await answer.reader.read(answer.headers)
        calls = await self._reception.open(answer, caller, data, arrival_s, self._desk)
        if len(calls) == 1:
            return answer.exchanges[0]
        return ExchangeGroup(answer.exchanges, AnswerMerger(calls.answers, calls.usage))


class _Answer(Arrival):
    """The answer to one request: reads the request's body, and writes the answer to its connection."""

    def __init__(
        self,
        scope: Message,
        receive: Receive,
        send: Send,
        config: HttpServerConfig,
        desk: BodyDesk,
        shell: GatewayShell,
    ) -> None:
        super().__init__(scope["path"], scope["headers"])
        self.scope = scope
        self._connection: ClientProtocol | None = scope.get(SCOPE_KEY)
        self.reader = BodyReader(receive, config.body, desk, arrived=self._body_arrived)
        self._errors: ErrorShape = FORMS[scope["path"]].errors
        self._receive, self._send, self._config, self._shell = receive, send, config, shell
        self._status = self.headers.get(QUEUE_STATUS, b"")  # how the client wants to be told of its place in the queue
        self._watch: asyncio.Task[None] | None = None
        self._started = False

    @property
    def wants_unknown_status(self) -> bool:
        return self._status not in (b"", b"comment", b"event")

    @property
    def _body_arrived(self) -> bool:
        return self._connection is not None and self._connection.body_arrived(self.scope)

    # --- the client's leaving ---

    def watch(self, left: Callable[[], None]) -> None:
        """Calls `left` when the client closes the connection. If the server does not use ClientProtocol, a task waits
        for this."""
        if self._connection is not None:
            self._connection.on_lost = left
            if self._connection.transport.is_closing():
                left()
        else:
            self._watch = asyncio.create_task(self._await_disconnect(left))

    def unwatch(self) -> None:
        if self._connection is not None:
            self._connection.on_lost = None
        if self._watch is not None:
            self._watch.cancel()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()

    async def _await_disconnect(self, left: Callable[[], None]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        left()

    # --- answers ---

    async def stream(self, exchange: Exchange | ExchangeGroup) -> bool:
        """Relays a streamed answer until its end; returns false if the client stopped reading."""
        loop, sent_mode, begun = asyncio.get_running_loop(), "", False
        every_s = self._config.comment_after_s if self._status else self._config.comment_every_s
        timer = loop.call_later(self._config.comment_after_s, exchange.ring)
        held = self._held_usage()
        try:
            while True:
                await exchange.wait()
                if exchange.left:
                    return True
                if exchange.chunks:
                    timer.cancel()
                    exchange.comment_due, data = False, exchange.take()
                    if not begun:
                        begun, data = True, self._with_tier(data)
                    if held is not None:
                        data = held.passed(data)
                elif exchange.done:
                    data = b""
                else:
                    exchange.comment_due, data = False, self._comment()
                    timer = loop.call_later(every_s, exchange.ring)
                done = exchange.done
                if done and held is not None:
                    data += held.end("" if exchange.error is not None else self._told())
                if done and exchange.error is not None:
                    if not self._started and not data:
                        await self.fail(exchange.error)
                        return True
                    data += exchange.error.events(self._errors)
                elif done and self.outcome_place is OutcomePlace.COMMENT:
                    data += b": x-hmas-slo: %b\n\n" % self._told().encode()
                if not self._started:
                    sent_mode = exchange.mode
                    await self._start(200, [*_STREAM_HEADERS, *self.own_headers()])
                elif exchange.mode and not sent_mode:  # the stream had begun before the request was placed
                    sent_mode, data = exchange.mode, b": x-hmas-mode: %b\n\n%b" % (exchange.mode.encode(), data)
                if not await self._write(data, more=not done):
                    return False
                if done:
                    return True
                if self._connection is not None and exchange.first_s is not None and not exchange.chunks:
                    write = self._connection.chunk_writer(self.scope)
                    exchange.direct = write if held is None else held.direct(write)
        finally:
            timer.cancel()

    def _told(self) -> str:
        return slo_told(self.exchanges, self.slo_from)

    def _held_usage(self) -> HeldUsage | None:
        """Returns what holds the stream's counts of tokens back until its outcome is known; None: the client does not
        want it there."""
        if self.outcome_place is not OutcomePlace.USAGE:
            return None
        return HeldUsage(named=FORMS[self.path].events is not None)

    def _comment(self) -> bytes:
        """Returns what keeps the stream alive; to a client that wants to know, it tells the place in the queue."""
        turn = self._shell.turn(self.exchanges[0]) if self._status else None
        if turn is None:
            return COMMENT
        status = {"place": turn.number, "queued": turn.queued, "expected_wait_s": round(turn.wait_s, 1)}
        if self._status == b"event":
            return b"event: queue_status\ndata: %b\n\n" % orjson.dumps({"type": "queue_status", **status})
        return b": queue_status %b\n\n" % orjson.dumps(status)

    async def plain(self, exchange: Exchange | ExchangeGroup) -> bool:
        """Sends an answer that is not streamed, the engine's body unchanged; returns false if the client stopped
        reading."""
        await exchange.settled()
        if exchange.left:
            return True
        if exchange.error is not None:
            await self.fail(exchange.error)
            return True
        data = self._with_tier(exchange.take())
        if self.outcome_place is OutcomePlace.USAGE:
            data = with_outcome(data, self._told())
        await self._start(200, [_JSON, (b"content-length", b"%d" % len(data)), *self.own_headers()])
        return await self._write(data, more=False)

    def _with_tier(self, data: bytes) -> bytes:
        """Returns a whole answer, or the beginning of a stream, with the service tier if the client named one."""
        if self.tier is None or not FORMS[self.path].chunked:
            return data
        return with_service_tier(data, self.tier)

    async def fail(self, error: ApiError) -> None:
        """Sends an error with its HTTP status, or as an event if the stream has begun. If some of the request's body
        has not arrived yet, it is read and thrown away and the connection is closed."""
        if self._started:
            await self._write(error.events(self._errors), more=False)
            return
        body = error.body(self._errors)
        headers = [*error.headers(), (b"content-length", b"%d" % len(body)), *self.own_headers()]
        if self.reader.complete or self._body_arrived:
            await self._start(error.status, headers)
            await self._write(body, more=False)
            return
        await self._start(error.status, [*headers, (b"connection", b"close")])
        await self._write(body, more=True)
        await self.reader.linger()
        await self._write(b"", more=False)

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, data: bytes, *, more: bool) -> bool:
        """Writes bytes of the answer; returns false if the client read nothing for `stall_s` seconds while the
        connection was full."""
        message = {"type": "http.response.body", "body": data, "more_body": more}
        connection = self._connection
        if connection is None or not connection.write_paused:
            await self._send(message)
            return True
        try:
            async with asyncio.timeout(self._config.stall_s):
                await self._send(message)
        except TimeoutError:
            return False
        return True
