"""A small HTTP/1.1 client that times bytes at the moment they are read from the socket.

aiohttp hands a chunk to the waiting task one turn of the event loop later, after all other ready sockets were read.
With a hundred streams that receive a token in the same engine step, this adds milliseconds to each time stamp and costs
twice the CPU per token. Here `data_received` feeds the parser (httptools), and the parser calls the sink directly.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

CONNECT_TIMEOUT_S = 10.0
KEEP_ALIVE_S = 3.0  # shorter than servers' keep-alive (often 5 s), so that no request is sent on a closing connection


class BodySink(Protocol):
    """Receives an HTTP answer as it arrives. `at_s` is an instant of the monotonic clock, seconds."""

    def head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def body(self, at_s: float, chunk: bytes) -> None: ...


class ConnectionFailed(OSError):
    """Raised if a connection could not be made, broke before the answer ended, or carried something that is not
    HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The server and path prefix of a base URL. Idle connections are kept per origin."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def of(cls, base_url: str) -> "Origin":
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base URL {base_url!r} must have the form http://HOST:PORT")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection(asyncio.Protocol):
    """One TCP connection with at most one request at a time. The HTTP parser calls its `on_*` methods."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._sink: BodySink | None = None
        self._done: asyncio.Future[bool] | None = None
        self._headers: dict[str, str] = {}
        self._headed = False
        self._at_s = 0.0
        self.idle_since_s = 0.0

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, request: bytes, sink: BodySink) -> bool:
        """Sends a request, passes its answer to `sink`, and returns when the answer has ended. Returns whether the
        connection can be used again. Raises ConnectionFailed."""
        assert self._transport is not None
        self._sink, self._headers, self._headed = sink, {}, False
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._done

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        self._at_s = time.monotonic()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the server's answer is not HTTP/1.1: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        # An answer with neither Content-Length nor chunked encoding ends when the connection closes.
        unframed = not {"content-length", "transfer-encoding"} & self._headers.keys()
        if exc is None and self._headed and unframed:
            self._finish(False)
        else:
            self._fail(str(exc) if exc else "the server closed the connection before its answer ended")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._headed = True
        if self._sink is not None:
            self._sink.head(self._parser.get_status_code(), self._headers)

    def on_body(self, chunk: bytes) -> None:
        if self._sink is not None:
            self._sink.body(self._at_s, chunk)

    def on_message_complete(self) -> None:
        if self._headed and self._parser.get_status_code() >= 200:
            self._finish(self._parser.should_keep_alive())

    def _finish(self, reusable: bool) -> None:
        self._sink = None
        if self._done is not None and not self._done.done():
            self._done.set_result(reusable)

    def _fail(self, reason: str) -> None:
        self._sink = None
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionFailed(reason))


@dataclass(slots=True)
class HttpClient:
    """Sends HTTP requests and keeps idle connections per origin. It retries nothing and follows no redirect."""

    _idle: dict[Origin, list[Connection]] = field(default_factory=dict)
    _tls: ssl.SSLContext | None = None
    _factory: Callable[[], Connection] = Connection

    async def get(self, origin: Origin, path: str, headers: Mapping[str, str], sink: BodySink) -> None:
        """Sends a GET request and passes its answer to `sink`. Raises ConnectionFailed."""
        await self._send(origin, f"GET {origin.prefix}{path}", headers, b"", sink)

    async def post(self, origin: Origin, path: str, headers: Mapping[str, str], body: bytes, sink: BodySink) -> None:
        """Sends a POST request and passes its answer to `sink`. Raises ConnectionFailed. If cancelled, it closes the
        connection, so that the server notices."""
        await self._send(origin, f"POST {origin.prefix}{path}", headers, body, sink)

    async def _send(self, origin: Origin, target: str, headers: Mapping[str, str], body: bytes, sink: BodySink) -> None:
        connection = self._take(origin) or await self._connect(origin)
        try:
            reusable = await connection.exchange(_request(origin, target, headers, body), sink)
        except BaseException:
            connection.abort()
            raise
        if reusable and connection.open:
            connection.idle_since_s = time.monotonic()
            self._idle.setdefault(origin, []).append(connection)
        else:
            connection.abort()

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    def _take(self, origin: Origin) -> Connection | None:
        """Returns the most recently used idle connection, or None if there is none that the server surely keeps
        open."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.open and time.monotonic() - connection.idle_since_s < KEEP_ALIVE_S:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> Connection:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await asyncio.get_running_loop().create_connection(
                    self._factory, origin.host, origin.port, ssl=self._tls if origin.tls else None
                )
        except TimeoutError:
            raise ConnectionFailed(f"no connection to {origin.authority} within {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"no connection to {origin.authority}: {error}") from None
        return connection


def _request(origin: Origin, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{target} HTTP/1.1", f"Host: {origin.authority}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
