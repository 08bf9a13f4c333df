"""A small HTTP/1.1 client that stamps bytes as they leave the socket.

aiohttp hands a chunk to the waiting task one turn of the loop later, when every other ready socket has been read: with
a hundred streams that receive a token in the same engine step this adds milliseconds to each time stamp, and it costs
twice the CPU per token. Here `data_received` feeds the parser (httptools) and the parser feeds the sink.
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
KEEP_ALIVE_S = 3.0  # less than servers grant (5 s is common), so that no request meets a closing connection


class BodySink(Protocol):
    """Takes an answer as it arrives. `at_s` is an instant of the monotonic clock."""

    def head(self, status: int, headers: Mapping[str, str]) -> None: ...

    def body(self, at_s: float, chunk: bytes) -> None: ...


class ConnectionFailed(OSError):
    """The connection could not be made, broke, or carried something that is not HTTP."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a base URL points: one pool of connections each."""

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
    """One TCP connection with at most one exchange at a time. The parser's callbacks are its `on_*` methods."""

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
        """Sends a request and returns when its answer is whole: whether the connection can be used again.
        Raises ConnectionFailed."""
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
            self._fail(f"not HTTP/1.1: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        # An answer without length and chunks ends where the connection does.
        unframed = not {"content-length", "transfer-encoding"} & self._headers.keys()
        if exc is None and self._headed and unframed:
            self._finish(False)
        else:
            self._fail(str(exc) if exc else "closed by the server")

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
    """Keeps idle connections per origin. Nothing is retried and no redirect is followed."""

    _idle: dict[Origin, list[Connection]] = field(default_factory=dict)
    _tls: ssl.SSLContext | None = None
    _factory: Callable[[], Connection] = Connection

    async def get(self, origin: Origin, path: str, headers: Mapping[str, str], sink: BodySink) -> None:
        """One GET, otherwise as `post`."""
        await self._send(origin, f"GET {origin.prefix}{path}", headers, b"", sink)

    async def post(self, origin: Origin, path: str, headers: Mapping[str, str], body: bytes, sink: BodySink) -> None:
        """One POST. Raises ConnectionFailed; a cancelled one closes its connection, so that the server notices."""
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
        """The most recently used idle connection, unless the server may be about to close it."""
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
            raise ConnectionFailed(f"no connection to {origin.authority} in {CONNECT_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"no connection to {origin.authority}: {error}") from None
        return connection


def _request(origin: Origin, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{target} HTTP/1.1", f"Host: {origin.authority}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
