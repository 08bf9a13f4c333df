"""Client connections of the API: what those of every port have, errors in the API's form, and the way by which tokens
are written without the ASGI server. Request bodies are bounded by the module `bodies`, which reads them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.gateway.errors import ApiError
from hmas.gateway.metrics import CONNECTIONS_REFUSED
from hmas.runtime.connections import GuardedProtocol, Unchunked

SCOPE_KEY = "hmas.connection"
_OUTCOMES = {"connections": Outcome.POOL_QUEUE_FULL, "head_time": Outcome.CLIENT_TOO_SLOW}


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


class ClientProtocol(GuardedProtocol):
    """A connection of the API.

    Each connection puts itself into the ASGI scope of its requests under `SCOPE_KEY`. The code that answers a request
    can set `on_lost` there, which is called when the connection ends, and needs no task that waits for this.
    """

    settings = (" (HMAS_MAX_CONNECTIONS)", " (HMAS_HEAD_TIMEOUT_S)")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.on_lost: Callable[[], None] | None = None

    def body_arrived(self, scope: Any) -> bool:
        """Whether all of the body of the request of `scope` has arrived."""
        return any(cycle.scope is scope and not cycle.more_body for cycle in self._cycles)

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
        if cycle.scope is not scope or not cycle.chunked_encoding or isinstance(cycle.transport, Unchunked):
            return None

        def write_chunk(data: bytes) -> bool:
            if flow.write_paused:
                return False
            write(b"%x\r\n%b\r\n" % (len(data), data))
            return True

        return write_chunk

    def abort(self) -> None:
        self.transport.abort()

    def refusal(self, reason: str, message: str, status: int) -> tuple[Sequence[tuple[bytes, bytes]], bytes]:
        CONNECTIONS_REFUSED.labels(reason).inc()
        error = ApiError.of(_OUTCOMES.get(reason, Outcome.INVALID_REQUEST), message)
        return error.headers(), error.body()

    def displaced(self, kind: str) -> None:
        CONNECTIONS_REFUSED.labels(kind).inc()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()
            self.on_lost = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: Any = self.scope
        scope[SCOPE_KEY] = self

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        cycle: Any = self.cycle
        # The answer to HEAD has no body that would take a held head along.
        if not self._upgrading and not isinstance(cycle.transport, Unchunked) and cycle.scope["method"] != "HEAD":
            cycle.transport = _HeldHead(self.transport)
