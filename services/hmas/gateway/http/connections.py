"""Connections that cannot wear the process down: bounded in number, in the size of a request's head and in the time
it takes. uvicorn bounds none of the three. Bodies are bounded where they are read (`bodies`).
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
    """`head_timeout_s`: from the connection, or a later request's first byte, to the end of its headers."""

    max_connections: int = 4096
    head_timeout_s: float = 10.0
    max_head_bytes: int = 64 * 2**10


class _HeldHead:
    """A transport that sends an answer's head together with the first bytes of its body: one system call less."""

    __slots__ = ("_head", "_transport", "write")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.write: Callable[[bytes], None] = self._hold

    def _hold(self, head: bytes) -> None:
        if head.startswith(b"HTTP/1.1 1"):
            self._transport.write(head)  # 100 Continue is waited for
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
    """Puts itself into the scope under `SCOPE_KEY`, so that an answer's end can be watched without a task."""

    bounds = ConnectionBounds()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], None] | None = None
        self._head_bytes = 0
        self._in_head = True
        self._timer: asyncio.TimerHandle | None = None

    @property
    def body_arrived(self) -> bool:
        """All of the current request's body is here (a pipelined request behind it may make this false)."""
        return not self.cycle.more_body

    @property
    def write_paused(self) -> bool:
        """The client reads slower than the answer comes."""
        return self.flow.write_paused

    def chunk_writer(self, scope: Any) -> Callable[[bytes], bool] | None:
        """Writes a chunk of the answer that has begun in `scope`, past the ASGI server, at half its cost. It returns
        false, and writes nothing, once the client reads too slowly. None where the answer has no chunks."""
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
            self._refuse("connections", ApiError.of(Outcome.POOL_QUEUE_FULL, "too many connections"), 503)
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
            return  # as after most reads: a head that comes in one needs no timer
        self._head_bytes += len(data)
        if self._head_bytes > self.bounds.max_head_bytes:
            message = f"the headers are larger than {self.bounds.max_head_bytes} bytes"
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
        """An idle connection closes; one whose client never read its last answer does not wait for it."""
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
        message = f"no complete request within {self.bounds.head_timeout_s:g} s"
        self._refuse("head_time", ApiError.of(Outcome.CLIENT_TOO_SLOW, message), 408)

    def _refuse(self, reason: str, error: ApiError, status: int) -> None:
        """Answers, unless an earlier request of this connection is being answered, and closes."""
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
    """The protocol class with these bounds, as uvicorn's `http` setting takes it."""
    return type("GuardedProtocol", (GuardedProtocol,), {"bounds": bounds})
