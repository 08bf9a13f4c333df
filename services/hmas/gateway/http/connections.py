"""Client connections with bounds that uvicorn lacks: their number, the size of a request's headers, the time until
these are complete, and what surrounds the chunks of a body. Request bodies are bounded by the module `bodies`, which
reads them.

No protocol but HTTP/1 is spoken: an `Upgrade` is ignored, as RFC 9110 allows, and the body belongs to its request. A
trailer never counts as a header.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hmas.contracts.outcome import Outcome
from hmas.gateway.metrics import CONNECTIONS_REFUSED
from hmas.gateway.openai.errors import ApiError

SCOPE_KEY = "hmas.connection"


LINGER_S = 1.0  # so long a refused client may go on sending, so that it reads the answer instead of a reset connection
CHUNK_OVERHEAD = 8  # a chunk of one byte takes six

# Headers that offer another protocol; they are left out when a head is read anew.
_UPGRADE = frozenset({b"upgrade", b"http2-settings"})


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds of the client connections.

    `head_timeout_s`: most seconds until the headers of a request are complete, from the opening of the connection for
    the first request, and from the first byte for each later one. `max_head_bytes`: most bytes of these headers. Sizes
    of chunks, their extensions and the trailers of a body may take as much, and `CHUNK_OVERHEAD` times the body itself.
    """

    max_connections: int = 4096
    head_timeout_s: float = 10.0
    max_head_bytes: int = 64 * 2**10


class _HeldHead:
    """A transport that keeps the headers of an answer back and writes them together with the first bytes of its body,
    which saves a system call."""

    __slots__ = ("_head", "_transport", "write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.write: Callable[[bytes], None] = self._hold

    def _hold(self, head: bytes) -> None:
        if head.startswith(b"HTTP/1.1 1"):
            self._transport.write(head)  # a client waits for "100 Continue" before it sends its body
            return
        self._head, self.write = head, self._send_both

    def _send_both(self, data: bytes) -> None:
        self.write = self._transport.write
        self._transport.write(self._head + data)

    def close(self) -> None:
        if self.write == self._send_both:
            self._send_both(b"")
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()


class _Unchunked:
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


class _HeadRefused(Exception):
    """The headers of a request, or its trailers, are not acceptable."""

    def __init__(self, reason: str, message: str, status: int) -> None:
        super().__init__(message)
        self.reason, self.status = reason, status


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the bounds of ConnectionBounds.

    Each connection puts itself into the ASGI scope of its requests under `SCOPE_KEY`. Whoever answers a request can set
    `on_lost` there, which is called when the connection ends, and needs no task that waits for this.
    """

    bounds = ConnectionBounds()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], None] | None = None
        self._head_bytes = 0
        self._in_head = True
        self._measure_head = False  # what came may hold more than a head may
        self._upgrading = False
        self._cycles: list[Any] = []  # the requests of this connection that are not answered yet, the oldest first
        self._refused = False  # what comes now is thrown away
        self._surplus = 0  # bytes since the head of the current request that may be no body, less what the body allows
        self._timer: asyncio.TimerHandle | None = None

    @property
    def body_arrived(self) -> bool:
        """Whether all of the current request's body has arrived. It may be false although it has, if the client sent
        the next request already."""
        return not self.cycle.more_body

    @property
    def write_paused(self) -> bool:
        """Whether writing is paused because the client reads more slowly than the answer comes."""
        return self.flow.write_paused

    def chunk_writer(self, scope: Any) -> Callable[[bytes], bool] | None:
        """Returns a function that writes one chunk of the answer to the request of `scope` directly to the connection,
        at half the cost of the ASGI server; None if that answer is not the current one or is not chunked.

        The function returns false, and writes nothing, while the client reads too slowly.
        """
        cycle, flow, write = self.cycle, self.flow, self.transport.write
        if cycle.scope is not scope or not cycle.chunked_encoding or isinstance(cycle.transport, _Unchunked):
            return None

        def write_chunk(data: bytes) -> bool:
            if flow.write_paused:
                return False
            write(b"%x\r\n%b\r\n" % (len(data), data))
            return True

        return write_chunk

    def abort(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.bounds.max_connections:
            message = f"the gateway has {self.bounds.max_connections} connections already (HMAS_MAX_CONNECTIONS)"
            self._refuse("connections", ApiError.of(Outcome.POOL_QUEUE_FULL, message), 503)
            self.transport.close()
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        for cycle in self._cycles:  # the server itself thinks of the last request alone
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._measure_head = self._head_bytes + len(data) > self.bounds.max_head_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse_malformed(error)
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.bounds.max_head_bytes:
                self._refuse_head(self._head_too_large())
            elif self._timer is None:
                self._await_head()
        elif self.cycle is not None and self.cycle.more_body:  # not the usual case: the body came in one read
            self._surplus += len(data)
            if self._surplus > self.bounds.max_head_bytes and self._is_chunked():
                self._refuse_head(self._chunks_too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[SCOPE_KEY] = self
        self._in_head, self._head_bytes, self._upgrading = True, 0, False

    def on_headers_complete(self) -> None:
        if self._measure_head and self._size_of_head() > self.bounds.max_head_bytes:
            raise self._head_too_large()
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise _HeadRefused("connect", "this server opens no tunnels: send a request of another method", 405)
            self._upgrading = True  # the parser ends the message here
            return
        self._head_complete()
        self._surplus = 0
        self.scope["headers"] = self.headers.copy()  # to which the parser will add trailers
        super().on_headers_complete()
        cycle: Any = self.cycle
        old = self.scope["http_version"] in ("1.0", "0.9")
        self._cycles = [each for each in self._cycles if not each.response_complete]
        self._cycles.append(cycle)
        cycle.transport = _Unchunked(self.transport) if old else _HeldHead(self.transport)

    def eof_received(self) -> None:
        if self._refused:
            self.transport.close()

    def on_body(self, body: bytes) -> None:
        self._surplus -= (1 + CHUNK_OVERHEAD) * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._upgrading:
            super().on_message_complete()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Reads the head that offers another protocol anew, without the offer, and then what followed it."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = (token.strip() for token in value.split(b","))
                value = b", ".join(token for token in tokens if token.lower() not in _UPGRADE)
            if name not in _UPGRADE:
                lines.append(b"%b: %b" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join([*lines, b"\r\n"]) + rest)

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
        self._refuse(refused.reason, ApiError.of(Outcome.INVALID_REQUEST, str(refused)), refused.status)

    def send_400_response(self, msg: str) -> None:
        self._refuse("malformed", ApiError.of(Outcome.INVALID_REQUEST, msg), 400)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was idle too long. What its client has not yet read of the last answer is dropped,
        because a normal close would wait until the client reads it."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self.bounds.head_timeout_s, self._head_late)

    def _head_complete(self) -> None:
        self._in_head = False
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_late(self) -> None:
        message = f"the request headers did not arrive within {self.bounds.head_timeout_s:g} s (HMAS_HEAD_TIMEOUT_S)"
        self._refuse("head_time", ApiError.of(Outcome.CLIENT_TOO_SLOW, message), 408)

    def _refuse(self, reason: str, error: ApiError, status: int) -> None:
        """Writes the error, unless the answer to an earlier request is still being written, and closes the connection:
        as soon as the client does, or after LINGER_S seconds."""
        self._head_complete()
        if self.transport.is_closing():
            return
        CONNECTIONS_REFUSED.labels(reason).inc()
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
        body = error.body()
        head = [b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-length: %d\r\n" % (status, len(body))]
        head += [b"%s: %s\r\n" % header for header in error.headers()]
        self.transport.write(b"".join([*head, b"\r\n", body]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER_S, self.transport.abort)
        else:
            self.transport.close()


def guarded(bounds: ConnectionBounds) -> type[GuardedProtocol]:
    """Returns GuardedProtocol with these bounds, as a class that uvicorn's `http` setting accepts."""
    return type("GuardedProtocol", (GuardedProtocol,), {"bounds": bounds})
