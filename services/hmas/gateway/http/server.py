"""The hot routes as bare ASGI: a request in, its answer's bytes out. Everything else goes to the FastAPI application.

Until its first byte a streamed answer can still fail with a real status. While it queues longer than
`comment_after_s`, SSE comments keep the connection alive; from then on an error is an event of the stream.
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
_JSON = (b"content-type", b"application/json")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServerConfig:
    """`stall_s`: how long a client may leave a full connection unread."""

    replay_field: bool = False
    comment_after_s: float = 2.0
    comment_every_s: float = 15.0
    stall_s: float = 60.0
    body: BodyBounds = field(default_factory=BodyBounds)


class GatewayServer:
    """An ASGI application."""

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
            await answer.fail(ApiError.of(Outcome.INTERNAL, "the gateway failed; its log has the reason"))
        finally:
            answer.unwatch()
            if answer.exchange is not None:
                self._shell.leave(answer.exchange)  # nothing if it is settled

    async def _serve(self, answer: "_Answer") -> None:
        if answer.scope["method"] != "POST":
            await answer.fail(replace(ApiError.of(Outcome.INVALID_REQUEST, "this path takes POST"), status=405))
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
            raise InvalidRequest(f"tenant `{tenant.name}` may not use `{call.model}`", "model", Outcome.FORBIDDEN)


class _Answer:
    """One request's connection."""

    def __init__(self, scope: Message, receive: Receive, send: Send, config: HttpServerConfig) -> None:
        self.scope = scope
        self.headers = read_headers(scope["headers"])
        # Ids on the mesh are always our own: two clients, or two gateways, may be sent the same one.
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
        """Calls `left` when the client goes. On a server of another kind a task waits for it."""
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
        """Relays until the end; false if the client stopped reading."""
        loop = asyncio.get_running_loop()
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
                    await self._start(200, [*_STREAM_HEADERS, self._id_header()])
                if not await self._write(data, more=not done):
                    return False
                if done:
                    return True
                if self._connection is not None and exchange.first_s is not None and not exchange.chunks:
                    exchange.direct = self._connection.chunk_writer(self.scope)
        finally:
            timer.cancel()

    async def plain(self, exchange: Exchange) -> bool:
        """The engine's body as it is; false if the client stopped reading."""
        await exchange.settled()
        if exchange.left:
            return True
        if exchange.error is not None:
            await self.fail(exchange.error)
            return True
        data = exchange.take()
        await self._start(200, [_JSON, (b"content-length", b"%d" % len(data)), self._id_header()])
        return await self._write(data, more=False)

    async def fail(self, error: ApiError) -> None:
        """An error object with its status, or an event if the stream has begun. A body not read yet is taken in
        afterwards, and the connection closed."""
        if self._started:
            await self._write(error.events(), more=False)
            return
        body = error.body()
        headers = [*error.headers(), (b"content-length", b"%d" % len(body)), self._id_header()]
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
        """False if the client left a full connection unread for too long."""
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

    def _id_header(self) -> tuple[bytes, bytes]:
        return (b"x-request-id", self.client_id.encode())
