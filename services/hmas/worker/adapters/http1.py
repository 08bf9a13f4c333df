"""A small pooled HTTP/1.1 client on asyncio protocols: answers are handled where the transport delivers them.

General-purpose clients spend several tasks and futures on each read of a stream; `docs/adr` has the figures.
"""

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Protocol, cast

import httptools


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """`keepalive_s` is below uvicorn's five seconds: a connection that the server is about to close is not reused."""

    max_connections: int = 4096
    max_idle: int = 256
    connect_timeout_s: float = 3.0
    keepalive_s: float = 4.0


class Reply(Protocol):
    """Receives one answer: head, any bodies, then one of the two ends. Must not block."""

    def on_head(self, status: int) -> None: ...

    def on_body(self, data: bytes) -> None:
        """Body bytes of one read of the transport."""
        ...

    def on_complete(self) -> None: ...

    def on_failure(self, reason: str) -> None:
        """No complete answer came, or no connection came about."""
        ...


class HttpExchange:
    """One request and its answer. `refused`: nobody listens at the engine's port."""

    __slots__ = ("aborted", "connection", "refused", "reply", "request", "retried")

    def __init__(self, request: tuple[bytes, bytes], reply: Reply) -> None:
        self.request = request
        self.reply = reply
        self.connection: _Connection | None = None
        self.retried = False
        self.refused = False
        self.aborted = False

    def abort(self) -> None:
        """Closes its connection, which is how an engine learns of it; the reply hears nothing more."""
        self.aborted = True
        if self.connection is not None:
            self.connection.abort()


class HttpPool:
    """Connections to one endpoint. `tls` None: plain text."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, config: PoolConfig) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._waiting: deque[HttpExchange] = deque()

    def send(self, head: bytes, body: bytes, reply: Reply) -> HttpExchange:
        """Sends a request, on an idle connection where there is one. `head` ends with its blank line."""
        exchange = HttpExchange((head, body), reply)
        connection = self._reusable()
        if connection is not None:
            connection.start(exchange)
        else:
            self._send_fresh(exchange)
        return exchange

    async def close(self) -> None:
        """Closes every connection; answers in progress end without a word."""
        self._waiting.clear()
        for connection in list(self._open):
            connection.abort()
        for task in self._connecting:
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports close

    def _reusable(self) -> "_Connection | None":
        oldest_s = self._loop.time() - self._config.keepalive_s
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since_s >= oldest_s and not connection.closing:
                return connection
            connection.abort()
        return None

    def _send_fresh(self, exchange: HttpExchange) -> None:
        if len(self._open) + len(self._connecting) >= self._config.max_connections:
            self._waiting.append(exchange)
            return
        task = self._loop.create_task(self._connect(exchange))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, exchange: HttpExchange) -> None:
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self), self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            self._fail_connect(exchange, f"no connection to the engine within {self._config.connect_timeout_s} s")
            return
        except OSError as error:
            exchange.refused = isinstance(error, ConnectionRefusedError)
            self._fail_connect(exchange, f"no connection to the engine: {error.strerror or error}")
            return
        if exchange.aborted:
            self.released(connection)
        else:
            connection.start(exchange)

    def _fail_connect(self, exchange: HttpExchange, reason: str) -> None:
        self._connecting.discard(asyncio.current_task())  # its place is free for the next
        if not exchange.aborted:
            exchange.reply.on_failure(reason)
        self._serve_waiting()

    # --- called by connections -----------------------------------------------------------------------------------

    def opened(self, connection: "_Connection") -> None:
        self._open.add(connection)

    def released(self, connection: "_Connection") -> None:
        """A connection has nothing more to do and may be used again."""
        while self._waiting and not connection.closing:
            exchange = self._waiting.popleft()
            if not exchange.aborted:
                connection.start(exchange)
                return
        if connection.closing:
            return
        if len(self._idle) >= self._config.max_idle:
            connection.abort()
            return
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)

    def lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._serve_waiting()

    def retry(self, exchange: HttpExchange) -> None:
        """Once more, on a connection that cannot be stale."""
        exchange.retried = True
        exchange.connection = None
        self._send_fresh(exchange)

    def _serve_waiting(self) -> None:
        while self._waiting:
            exchange = self._waiting.popleft()
            if not exchange.aborted:
                self._send_fresh(exchange)
                return


class _Connection(asyncio.Protocol):
    """One connection: at most one exchange at a time."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._bodies: list[bytes] = []  # of the present read
        self.on_body = self._bodies.append  # for the parser, which looks it up when it is made
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: HttpExchange | None = None
        self._used = False  # an answer came over it before
        self._answered = False  # bytes of the present answer came
        self._delimited = False  # the answer says where it ends
        self._in_body = False
        self._complete = False
        self._keep_alive = False
        self.idle_since_s = 0.0

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def start(self, exchange: HttpExchange) -> None:
        if self._transport is None:
            exchange.reply.on_failure("connection closed by the engine")
            return
        self._exchange = exchange
        exchange.connection = self
        self._answered = self._delimited = self._in_body = self._complete = False
        self._transport.writelines(exchange.request)

    def abort(self) -> None:
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            self.abort()  # nobody asked
            return
        self._answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"malformed HTTP answer: {error}")
            return
        bodies = self._bodies
        if bodies:
            data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
            bodies.clear()
            exchange.reply.on_body(data)
        if self._complete and self._exchange is exchange:
            self._end(exchange)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        exchange, self._exchange = self._exchange, None
        self._pool.lost(self)
        if exchange is None:
            return
        if self._in_body and not self._delimited and error is None:
            exchange.reply.on_complete()
        elif self._used and not self._answered and not exchange.retried:
            self._pool.retry(exchange)
        else:
            exchange.reply.on_failure(f"connection lost: {error or 'closed by the engine'}")

    def _end(self, exchange: HttpExchange) -> None:
        self._exchange = None
        exchange.connection = None
        self._used = True
        if self._keep_alive and not self.closing:
            self._pool.released(self)
        else:
            self.abort()
        exchange.reply.on_complete()

    def _fail(self, reason: str) -> None:
        exchange = self._exchange
        self.abort()
        if exchange is not None:
            exchange.reply.on_failure(reason)

    # --- httptools -----------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._delimited = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._exchange is not None:
            self._in_body = True
            self._exchange.reply.on_head(status)

    def on_message_complete(self) -> None:
        self._complete = self._in_body  # not after an interim 1xx answer
        self._keep_alive = self._parser.should_keep_alive()  # known only here
