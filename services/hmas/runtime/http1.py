"""A small HTTP/1.1 client with pooled connections on asyncio protocols: answers are handled where the transport
delivers them. Gateways use it for answers of engines, workers for their health and metrics.

General-purpose clients spend several tasks and futures on each read of a stream; `docs/adr` has the figures.
"""

import asyncio
import ssl
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Protocol, cast

import httptools


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Limits of a connection pool.

    At most `max_idle` unused connections are kept, each for `keepalive_s`, which is below uvicorn's five seconds so
    that a connection that the server is about to close is not reused.
    """

    max_connections: int = 4096
    max_idle: int = 256
    connect_timeout_s: float = 3.0
    keepalive_s: float = 4.0


MAX_BETWEEN_BYTES = 2**16  # of heads, chunk sizes and trailers in a row, without a byte of a body


class Reply(Protocol):
    """Receives one HTTP answer: its head, any parts of its body, then `on_complete` or `on_failure`. It must not block.

    `on_failure` may also come first.
    """

    def on_head(self, status: int) -> None: ...

    def on_body(self, data: bytes) -> None:
        """Receives the bytes of the body that one read of the transport brought."""
        ...

    def on_complete(self) -> None: ...

    def on_failure(self, reason: str) -> None:
        """Learns that no connection could be made, or that the answer broke off; `reason` says why."""
        ...


_SENT = (b"", b"")


class HttpExchange:
    """One HTTP request and its answer. `unreached`: no connection to the engine could be made, or it was lost before
    anything was sent."""

    __slots__ = ("aborted", "connection", "reply", "request", "retried", "unreached")

    def __init__(self, request: tuple[bytes, bytes], reply: Reply) -> None:
        self.request = request
        self.reply = reply
        self.connection: _Connection | None = None
        self.retried = False
        self.unreached = False
        self.aborted = False

    def abort(self) -> None:
        """Gives the request up: closes its connection, by which the engine notices it. The reply is not called any
        more."""
        self.aborted = True
        self.request = _SENT  # it may still wait for a connection, and must not keep its body until then
        if self.connection is not None:
            self.connection.abort()


class HttpPool:
    """The HTTP connections to one host and port. `tls`: the TLS context; None means plain HTTP."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, config: PoolConfig) -> None:
        self._host, self._port, self._tls = host, port, tls
        self._config, self._max_idle = config, config.max_idle
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Connection] = []  # the one that became idle last is taken first, and stands last
        self._sweep: asyncio.TimerHandle | None = None
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._waiting: deque[HttpExchange] = deque()

    def send(self, head: bytes, body: bytes, reply: Reply) -> HttpExchange:
        """Sends a request, on an idle connection if there is one, and returns at once; `reply` gets the answer.

        `head` is the request line and all headers with the blank line that ends them.
        """
        exchange = HttpExchange((head, body), reply)
        connection = self._reusable()
        if connection is not None:
            connection.start(exchange)
        else:
            self._send_fresh(exchange)
        return exchange

    def retire(self) -> None:
        """Closes each connection as soon as it has no request, because the pool gets no further ones."""
        self._max_idle = 0
        for connection in list(self._idle):
            connection.abort()

    async def close(self) -> None:
        """Closes all connections; the replies of requests in progress are not called any more."""
        self._waiting.clear()
        if self._sweep is not None:
            self._sweep.cancel()
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
            timeout_s = self._config.connect_timeout_s
            self._fail_connect(exchange, f"could not connect to the engine within {timeout_s:g} s")
            return
        except OSError as error:
            self._fail_connect(exchange, f"could not connect to the engine: {error.strerror or error}")
            return
        except UnicodeError as error:  # of a host's name with a label that is empty or too long
            self._fail_connect(exchange, f"could not connect to the engine: its host cannot be a name: {error}")
            return
        if exchange.aborted:
            self.released(connection)
        else:
            connection.start(exchange)

    def _fail_connect(self, exchange: HttpExchange, reason: str) -> None:
        self._connecting.discard(asyncio.current_task())  # its place is free for the next
        exchange.unreached = not exchange.retried  # the engine may have read a retried one before it died
        if not exchange.aborted:
            exchange.reply.on_failure(reason)
        self._serve_waiting()

    # --- called by connections -----------------------------------------------------------------------------------

    def opened(self, connection: "_Connection") -> None:
        self._open.add(connection)

    def released(self, connection: "_Connection") -> None:
        """Takes back a connection that has no request: it serves the next waiting one, becomes idle, or is closed."""
        while self._waiting and not connection.closing:
            exchange = self._waiting.popleft()
            if not exchange.aborted:
                connection.start(exchange)
                return
        if connection.closing:
            return
        if len(self._idle) >= self._max_idle:
            connection.abort()
            return
        connection.idle_since_s = self._loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._config.keepalive_s, self._close_stale)

    def _close_stale(self) -> None:
        """Closes the connections that have been idle for too long: what a burst needed is not kept for ever."""
        oldest_s = self._loop.time() - self._config.keepalive_s
        for connection in self._idle[: bisect_right(self._idle, oldest_s, key=lambda c: c.idle_since_s)]:
            self._idle.remove(connection)
            connection.abort()
        self._sweep = self._loop.call_later(self._config.keepalive_s, self._close_stale) if self._idle else None

    def lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._serve_waiting()

    def retry(self, exchange: HttpExchange) -> None:
        """Sends the request once more, on a new connection, because the reused one had been closed by the engine."""
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
    """One TCP connection, which serves one exchange at a time."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._bodies: list[bytes] = []  # parts of the body that the present read brought
        self.on_body = self._bodies.append  # the parser looks this method up when it is constructed
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: HttpExchange | None = None
        self._used = False  # an answer has come over this connection before
        self._answered = False  # bytes of the present answer have come
        self._delimited = False  # the answer's headers say where it ends
        self._in_body = False
        self._complete = False
        self._keep_alive = False
        self._between = 0  # bytes of the present answer since the last byte of its body
        self.idle_since_s = 0.0

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def start(self, exchange: HttpExchange) -> None:
        if self._transport is None:
            exchange.unreached = not exchange.retried  # a retried one had been written to another connection
            exchange.reply.on_failure("the engine closed the connection before the request was sent")
            return
        self._exchange = exchange
        exchange.connection = self
        self._answered = self._delimited = self._in_body = self._complete = False
        self._between = 0
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
            self.abort()  # bytes without a request
            return
        self._answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self._complete:
                self._fail(f"the engine's answer is not valid HTTP: {error}")
                return
            self._keep_alive = False  # something follows the whole answer that nobody asked for
        bodies = self._bodies
        if self._exchange is not exchange:
            bodies.clear()  # its reply gave the request up at the head
        elif bodies:
            data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
            bodies.clear()
            self._between = 0
            exchange.reply.on_body(data)
        elif not self._complete:
            self._between += len(data)
            if self._between > MAX_BETWEEN_BYTES:
                self._fail(f"the engine's answer has a head or trailer of more than {MAX_BETWEEN_BYTES} bytes")
                return
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
            cause = error or "the engine closed it"
            exchange.reply.on_failure(f"the connection to the engine was lost before the answer was complete: {cause}")

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

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("a second answer to one request")  # the parser reads no further

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._delimited = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._exchange is not None:
            self._in_body = True
            self._exchange.request = _SENT  # an answer has begun, so that the request is not sent again
            self._exchange.reply.on_head(status)

    def on_message_complete(self) -> None:
        self._complete = self._in_body  # not after an interim 1xx answer
        self._keep_alive = self._parser.should_keep_alive()  # known only here
