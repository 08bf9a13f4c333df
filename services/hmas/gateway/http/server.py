"""The two routes that generate text, as plain ASGI without a framework. All other paths go to the FastAPI application.

Until the first byte of a streamed answer is sent, an error has its own HTTP status. If there is no token for
`comment_after_s` seconds, the stream begins with SSE comments that keep the connection alive; after that an error can
only be sent as an event of the stream.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.exchange import Exchange
from hmas.gateway.http.bodies import BodyBounds, BodyReader, ClientGone, Message, Receive, Send
from hmas.gateway.http.connections import SCOPE_KEY, GuardedProtocol
from hmas.gateway.metrics import INVALID
from hmas.gateway.openai.body import CHAT_PATH, COMPLETIONS_PATH, Call, parse_call, request_of
from hmas.gateway.openai.errors import ApiError, InvalidRequest
from hmas.gateway.shell import GatewayShell
from hmas.gateway.tenants.store import TenantStore
from hmas.gateway.tenants.terms import Tenant, client_request_id, read_headers, traceparent
from hmas.runtime import ids

log = structlog.get_logger()

HOT_PATHS = frozenset({CHAT_PATH, COMPLETIONS_PATH})
COMMENT = b": keep-alive\n\n"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_BYPASS = (b"x-hmas-mode", b"bypass")  # the gateway placed the request itself, because the worker was silent
_BYPASS_COMMENT = b": x-hmas-mode: bypass\n\n"  # the same in a stream that has begun
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServerConfig:
    """Settings of the HTTP server; durations in seconds.

    `replay_field`: whether the body field `hmas_replay` is accepted. `comment_after_s`: time without a token after
    which a stream begins with keep-alive comments, one every `comment_every_s`. `stall_s`: how long a client may read
    nothing while its answer waits.
    """

    replay_field: bool = False
    comment_after_s: float = 2.0
    comment_every_s: float = 15.0
    stall_s: float = 60.0
    body: BodyBounds = field(default_factory=BodyBounds)


class GatewayServer:
    """The gateway's ASGI application. It answers the two routes that generate text and hands every other request to
    `rest`."""

    def __init__(
        self,
        config: HttpServerConfig,
        shell: GatewayShell,
        tenants: TenantStore,
        directory: ModelDirectory,
        rest: Callable[..., Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._shell, self._tenants, self._directory = config, shell, tenants, directory
        self._rest, self._clock = rest, clock

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in HOT_PATHS:
            await self._rest(scope, receive, send)
            return
        answer = _Answer(scope, receive, send, self._config)
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
            if answer.exchange is not None:
                self._shell.leave(answer.exchange)  # does nothing if the request has ended

    async def _serve(self, answer: "_Answer") -> None:
        if answer.scope["method"] != "POST":
            await answer.fail(
                replace(ApiError.of(Outcome.INVALID_REQUEST, "use the method POST for this path"), status=405)
            )
            return
        arrival_s = self._clock()
        tenant = self._tenants.authenticate(answer.headers)
        data = await answer.reader.read(answer.headers)
        call = parse_call(answer.scope["path"], data, replay_enabled=self._config.replay_field)
        self._check_model(call, tenant)
        request: Request = request_of(call, answer.request_id, tenant, answer.headers, arrival_s)
        exchange = self._shell.open(call, request, answer.client_id, traceparent(answer.headers))
        answer.exchange = exchange
        answer.watch(lambda: self._shell.leave(exchange))
        if call.stream:
            finished = await answer.stream(exchange)
        else:
            finished = await answer.plain(exchange)
        if not finished:
            self._shell.give_up(exchange)
        if exchange.left:
            answer.abort()

    def _check_model(self, call: Call, tenant: Tenant) -> None:
        if tenant.models is None or call.model in tenant.models:
            return
        if self._directory.resolve(call.model) not in tenant.models:
            message = f"tenant `{tenant.name}` may not use the model `{call.model}`: GET /v1/models lists those it may"
            raise InvalidRequest(message, "model", Outcome.FORBIDDEN)


class _Answer:
    """The answer to one request: reads the request's body, and writes the answer to its connection."""

    def __init__(self, scope: Message, receive: Receive, send: Send, config: HttpServerConfig) -> None:
        self.scope = scope
        self.headers = read_headers(scope["headers"])
        # The mesh makes its own id for each request, because two clients may send the same `X-Request-Id`.
        self.request_id = ids.request_id()
        self.client_id = client_request_id(self.headers) or self.request_id
        self._connection: GuardedProtocol | None = scope.get(SCOPE_KEY)
        arrived = self._connection is not None and self._connection.body_arrived
        self.reader = BodyReader(receive, config.body, arrived=arrived)
        self.exchange: Exchange | None = None
        self._receive, self._send, self._config = receive, send, config
        self._watch: asyncio.Task[None] | None = None
        self._started = False

    # --- the client's leaving ---

    def watch(self, left: Callable[[], None]) -> None:
        """Calls `left` when the client closes the connection. If the server does not use GuardedProtocol, a task waits
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

    async def stream(self, exchange: Exchange) -> bool:
        """Relays a streamed answer until its end; returns false if the client stopped reading."""
        loop, told = asyncio.get_running_loop(), False
        timer = loop.call_later(self._config.comment_after_s, exchange.ring)
        try:
            while True:
                await exchange.wait()
                if exchange.left:
                    return True
                if exchange.chunks:
                    timer.cancel()
                    exchange.comment_due, data = False, exchange.take()
                elif exchange.done:
                    data = b""
                else:
                    exchange.comment_due, data = False, COMMENT
                    timer = loop.call_later(self._config.comment_every_s, exchange.ring)
                done = exchange.done
                if done and exchange.error is not None:
                    if not self._started and not data:
                        await self.fail(exchange.error)
                        return True
                    data += exchange.error.events()
                if not self._started:
                    told = exchange.bypass
                    await self._start(200, [*_STREAM_HEADERS, *self._own_headers()])
                elif exchange.bypass and not told:
                    told, data = True, _BYPASS_COMMENT + data
                if not await self._write(data, more=not done):
                    return False
                if done:
                    return True
                if self._connection is not None and exchange.first_s is not None and not exchange.chunks:
                    exchange.direct = self._connection.chunk_writer(self.scope)
        finally:
            timer.cancel()

    async def plain(self, exchange: Exchange) -> bool:
        """Sends an answer that is not streamed, the engine's body unchanged; returns false if the client stopped
        reading."""
        await exchange.settled()
        if exchange.left:
            return True
        if exchange.error is not None:
            await self.fail(exchange.error)
            return True
        data = exchange.take()
        await self._start(200, [_JSON, (b"content-length", b"%d" % len(data)), *self._own_headers()])
        return await self._write(data, more=False)

    async def fail(self, error: ApiError) -> None:
        """Sends an error with its HTTP status, or as an event if the stream has begun. If the request's body was not
        read to its end, the rest is read and thrown away and the connection is closed."""
        if self._started:
            await self._write(error.events(), more=False)
            return
        body = error.body()
        headers = [*error.headers(), (b"content-length", b"%d" % len(body)), *self._own_headers()]
        if self.reader.complete:
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

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", self.client_id.encode())]
        if self.exchange is not None and self.exchange.bypass:
            headers.append(_BYPASS)
        return headers
