"""Client connections with bounds that uvicorn lacks: their number, the size of a request's headers, and the time until
these are complete. Request bodies are bounded by the module `bodies`, which reads them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hmas.contracts.outcome import Outcome
from hmas.gateway.metrics import CONNECTIONS_REFUSED
from hmas.gateway.openai.errors import ApiError

SCOPE_KEY = "hmas.connection"


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """Bounds of the client connections.

    `head_timeout_s`: most seconds until the headers of a request are complete, from the opening of the connection for
    the first request, and from the first byte for each later one. `max_head_bytes`: most bytes of these headers.
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
        if cycle.scope is not scope or not cycle.chunked_encoding:
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
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_complete()
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head:
            return  # the usual case: the headers came in one read and need no timer
        self._head_bytes += len(data)
        if self._head_bytes > self.bounds.max_head_bytes:
            message = f"the request headers are larger than {self.bounds.max_head_bytes} bytes: send less"
            self._refuse("head_size", ApiError.of(Outcome.INVALID_REQUEST, message), 431)
        elif self._timer is None:
            self._await_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[SCOPE_KEY] = self
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._head_complete()
        super().on_headers_complete()
        cycle: Any = self.cycle
        cycle.transport = _HeldHead(self.transport)

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _head_late(self) -> None:
        message = f"the request headers did not arrive within {self.bounds.head_timeout_s:g} s (HMAS_HEAD_TIMEOUT_S)"
        self._refuse("head_time", ApiError.of(Outcome.CLIENT_TOO_SLOW, message), 408)

    def _refuse(self, reason: str, error: ApiError, status: int) -> None:
        """Closes the connection. The error is written first, unless an earlier request's answer is still being
        written."""
        self._head_complete()
        if self.transport.is_closing():
            return
        CONNECTIONS_REFUSED.labels(reason).inc()
        if self.cycle is None or self.cycle.response_complete:
            body = error.body()
            head = [b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-length: %d\r\n" % (status, len(body))]
            head += [b"%s: %s\r\n" % header for header in error.headers()]
            self.transport.write(b"".join([*head, b"\r\n", body]))
        self.transport.close()


def guarded(bounds: ConnectionBounds) -> type[GuardedProtocol]:
    """Returns GuardedProtocol with these bounds, as a class that uvicorn's `http` setting accepts."""
    return type("GuardedProtocol", (GuardedProtocol,), {"bounds": bounds})
