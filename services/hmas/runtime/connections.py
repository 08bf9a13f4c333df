"""HTTP connections with bounds that uvicorn lacks: their number, the size of a request's headers, the time until these
are complete, and what surrounds the chunks of a body.

Where there are too many, one is closed to make room for a new one, the first of these that exists: the oldest that has
sent no complete head for `GRACE_S` seconds, the oldest idle one, the oldest without a complete head. A client that
holds connections and sends nothing therefore locks nobody out, and many clients that come at once spare one another.

No protocol but HTTP/1 is spoken: an `Upgrade` is ignored, as RFC 9110 allows, and the body belongs to its request. A
trailer never counts as a header.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import httptools
import structlog
from prometheus_client import Counter
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hmas.runtime.open_files import open_files

log = structlog.get_logger()
REFUSED = Counter(
    "hmas_connections_refused", "HTTP connections to other ports than the API's that were refused", ["reason"]
)

LINGER_S = 1.0  # how long a refused client may still send, so that it reads the answer instead of a reset
GRACE_S = 1.0  # how long a new connection may take to send its head while others are idle
CHUNK_OVERHEAD = 8  # a chunk of one byte takes six

# Headers that offer another protocol; they are left out when a head is read anew.
_UPGRADE = frozenset({b"upgrade", b"http2-settings"})


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds of the connections to one port.

    `head_timeout_s`: most seconds until the headers of a request are complete, from the opening of the connection for
    the first request, and from the first byte for each later one. `with_body`: its body must be complete by then, too.
    `max_head_bytes`: most bytes of these headers. Sizes of chunks, their extensions and the trailers of a body may take
    as much, and `CHUNK_OVERHEAD` times the body itself. `unread_s`: a client that reads nothing of an answer for so
    many seconds, while more waits than the sockets hold, is cut off.
    """

    max_connections: int = 4096
    head_timeout_s: float = 10.0
    max_head_bytes: int = 64 * 2**10
    with_body: bool = False
    unread_s: float = 120.0

    def fitting(self) -> "ConnectionBounds":
        """Returns these bounds with no more connections than a quarter of the files that this process may have open:
        another quarter may be connections to engines."""
        most = open_files() // 4
        if self.max_connections <= most:
            return self
        log.warning("few_open_files", connections=most, wanted=self.max_connections, advice="raise `ulimit -n`")
        return replace(self, max_connections=most)


FOR_OPERATORS = ConnectionBounds(max_connections=256, head_timeout_s=5.0, with_body=True, unread_s=30.0)


class Unchunked:
    """A transport for a client of HTTP/1.0, which knows no chunks: takes an answer as the server writes it, and writes
    its text. The end of the connection is the end of the answer."""

    __slots__ = ("_transport", "write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.write: Callable[[bytes], None] = self._write_head

    def _write_head(self, head: bytes) -> None:
        chunked = b"\r\ntransfer-encoding: chunked\r\n"
        self.write = self._write_chunk if chunked in head else self._transport.write
        self._transport.write(head.replace(chunked, b"\r\n", 1))

    def _write_chunk(self, data: bytes) -> None:
        size, _, text = data.partition(b"\r\n")
        if size:
            self._transport.write(text[: int(size, 16)])

    def close(self) -> None:
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class EvictableConnections:
    """The connections of one port on which no request is being answered, the oldest first: those whose client has not
    sent a whole head, or was refused, and those that are idle."""

    def __init__(self) -> None:
        self.unasked: dict[GuardedProtocol, float] = {}  # since when, in s of the event loop
        self.idle: dict[GuardedProtocol, None] = {}

    def make(self, now_s: float) -> str:
        """Closes the connection that is the cheapest to lose; returns what it was, empty if each answers a request."""
        waiting = next(iter(self.unasked), None)
        if self.idle and (waiting is None or now_s - self.unasked[waiting] < GRACE_S):
            return self._end(next(iter(self.idle)), "idle")
        return "" if waiting is None else self._end(waiting, "displaced")

    def _end(self, connection: "GuardedProtocol", kind: str) -> str:
        self.leave(connection)
        connection.transport.abort()
        return kind

    def leave(self, connection: "GuardedProtocol") -> None:
        self.unasked.pop(connection, None)
        self.idle.pop(connection, None)


class _HeadRefused(Exception):
    """The headers of a request, or its trailers, are not acceptable."""

    def __init__(self, reason: str, message: str, status: int) -> None:
        super().__init__(message)
        self.reason, self.status = reason, status


def _without_offer(parser: httptools.HttpRequestParser, url: bytes, headers: list[tuple[bytes, bytes]]) -> bytes:
    """Returns the head that a parser has read, without what offers another protocol."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), url, parser.get_http_version().encode())]
    for name, value in headers:
        if name == b"connection":
            tokens = (token.strip() for token in value.split(b","))
            value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
        if name not in _UPGRADE:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"\r\n"])


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the bounds of ConnectionBounds. A port has a class of its own (`guarded`)."""

    bounds: ClassVar[ConnectionBounds]
    room: ClassVar[EvictableConnections]
    # What an answer names where the bound is a setting: (of connections, of the time of a head).
    settings: ClassVar[tuple[str, str]] = ("", "")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        self._in_head = True
        self._measure_head = False  # what came may hold more than a head may
        self._upgrading = False
        self._cycles: list[Any] = []  # the requests of this connection that are not answered yet, the oldest first
        self._refused = False  # what comes now is thrown away
        self._surplus = 0  # bytes since the head of the current request that may be no body, less what the body allows
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None  # runs while writing is paused

    def refusal(self, reason: str, message: str, status: int) -> tuple[Sequence[tuple[bytes, bytes]], bytes]:
        """Counts a refusal and returns the headers and the body of its answer."""
        REFUSED.labels(reason).inc()
        return [(b"content-type", b"text/plain; charset=utf-8")], f"{message}\n".encode()

    def displaced(self, kind: str) -> None:
        """Counts a connection that made room for another one."""
        REFUSED.labels(kind).inc()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            kind = self.room.make(self.loop.time())
            if not kind:
                message = (
                    f"there are {self.bounds.max_connections} connections already{self.settings[0]}: try again soon"
                )
                self._refuse("connections", message, 503)
                self.transport.close()
                return
            self.displaced(kind)
        self._await()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.leave(self)
        self._cancel_timer()
        self._read_again()
        for cycle in self._cycles:  # the server itself thinks of the last request alone
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        try:
            size = self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse_malformed(error)
            return
        if self._in_head:
            self._head_bytes += size
            if self._head_bytes > self.bounds.max_head_bytes:
                self._refuse_head(self._head_too_large())
            elif self._timer is None:
                self._await()
        elif self.cycle is not None and self.cycle.more_body:  # not the usual case: the body came in one read
            self._surplus += size
            if self._surplus > self.bounds.max_head_bytes and self._is_chunked():
                self._refuse_head(self._chunks_too_large())
            elif self.bounds.with_body and self._timer is None:
                self._await()

    def _parse(self, data: bytes) -> int:
        """Feeds the parser, and each head that offers another protocol once more without the offer. Returns the size of
        what was fed since the last such head. Raises HttpParserError."""
        parts = deque([memoryview(data)])
        while True:
            size = sum(map(len, parts))
            self._measure_head = self._head_bytes + size > self.bounds.max_head_bytes
            try:
                while parts:
                    self.parser.feed_data(parts[0])
                    parts.popleft()
            except httptools.HttpParserUpgrade as upgrade:
                rest = parts.popleft()[upgrade.args[0] :]
                parts.extendleft((rest, memoryview(self._ignore_upgrade())))
            else:
                return size

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes, self._upgrading = True, 0, False

    def on_headers_complete(self) -> None:
        if self._measure_head and self._size_of_head() > self.bounds.max_head_bytes:
            raise self._head_too_large()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _HeadRefused("connect", "this server opens no tunnels: send a request of another method", 405)
            self._upgrading = True  # the parser ends the message here
            return
        self._in_head = False
        if not self.bounds.with_body:
            self._asked()
        self._surplus = 0
        self.scope["headers"] = self.headers.copy()  # to which the parser will add trailers
        super().on_headers_complete()
        cycle: Any = self.cycle
        self._cycles = [each for each in self._cycles if not each.response_complete]
        self._cycles.append(cycle)
        if self.scope["http_version"] in ("1.0", "0.9"):
            cycle.transport = Unchunked(self.transport)

    def eof_received(self) -> None:
        if self._refused:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._surplus -= (1 + CHUNK_OVERHEAD) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._upgrading:
            super().on_message_complete()
            if self.bounds.with_body:
                self._asked()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline or self._refused or self.transport.is_closing():
            return
        if self._timer is not None:  # a part of the next request came before this answer ended
            self.room.unasked[self] = self.loop.time()
        elif not self.transport.get_write_buffer_size():
            self.room.idle[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_again()
        super().resume_writing()

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _ignore_upgrade(self) -> bytes:
        """Returns the head that offers another protocol without the offer, for a new parser."""
        head = _without_offer(self.parser, self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return head

    def _is_chunked(self) -> bool:
        return any(name == b"transfer-encoding" for name, _ in self.headers)

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_too_large(self) -> _HeadRefused:
        message = f"the request headers are larger than {self.bounds.max_head_bytes} bytes: send less"
        return _HeadRefused("head_size", message, 431)

    def _chunks_too_large(self) -> _HeadRefused:
        limit = self.bounds.max_head_bytes
        message = f"the sizes of chunks and the trailers of the body are larger than {limit} bytes: send larger chunks"
        return _HeadRefused("chunk_size", message, 400)

    def _refuse_malformed(self, error: httptools.HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, _HeadRefused):
            self._refuse_head(cause)
        else:
            self.send_400_response("the request is not valid HTTP")

    def _refuse_head(self, refused: _HeadRefused) -> None:
        self._refuse(refused.reason, str(refused), refused.status)

    def send_400_response(self, msg: str) -> None:
        self._refuse("malformed", msg, 400)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was idle too long. What its client has not yet read of the last answer is dropped,
        because a normal close would wait until the client reads it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _await(self) -> None:
        self.room.leave(self)
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self.room.unasked[self] = self.loop.time()
        self._timer = self.loop.call_later(self.bounds.head_timeout_s, self._late)

    def _asked(self) -> None:
        """Stops the timer: all that this port waits for in the request has come."""
        self.room.leave(self)
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        if not self._in_head and self.cycle.response_complete:
            self.transport.close()  # the request got its answer before its body came
            return
        what = "headers" if self._in_head else "body"
        within = f"{self.bounds.head_timeout_s:g} s{self.settings[1]}"
        self._refuse("head_time", f"the request {what} did not arrive within {within}", 408)

    def _refuse(self, reason: str, message: str, status: int) -> None:
        """Writes the error, unless the answer to an earlier request is still being written, and closes the connection:
        as soon as the client does, or after LINGER_S seconds."""
        self._in_head = False
        self._cancel_timer()
        if self.transport.is_closing():
            return
        headers, body = self.refusal(reason, message, status)
        self._refused = True
        cycle = self.cycle
        incomplete = cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline
        if not (cycle is None or cycle.response_complete or incomplete):
            self.transport.close()
            return
        if incomplete:
            cycle.disconnected = True  # this is its answer
            cycle.message_event.set()
            self.flow.resume_reading()
        head = [b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-length: %d\r\n" % (status, len(body))]
        if status == 405:
            head.append(b"allow: \r\n")  # none: there is no method for the target of a tunnel
        head += [b"%s: %s\r\n" % header for header in headers]
        self.transport.write(b"".join([*head, b"\r\n", body]))
        self.room.leave(self)
        self.room.unasked[self] = self.loop.time()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER_S, self.transport.abort)
        else:
            self.transport.close()


def guarded(
    bounds: ConnectionBounds = FOR_OPERATORS, protocol: type[GuardedProtocol] = GuardedProtocol
) -> type[GuardedProtocol]:
    """Returns a protocol with these bounds for one port, as a class that uvicorn's `http` setting accepts."""
    return type(protocol.__name__, (protocol,), {"bounds": bounds.fitting(), "room": EvictableConnections()})
