"""TLS handshakes with bounds, which event loops lack: their number, and the time that each may take.

A server that is given a TLS context knows of a connection only after its handshake, so that clients which begin one and
send nothing more would hold any number of open files. Here the server gets plain connections, and each does its
handshake itself. Where there are too many, the oldest makes room: its client had the most time.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from prometheus_client import Counter

UNFINISHED = Counter("hmas_tls_handshakes_unfinished", "TLS handshakes of clients that were given up", ["reason"])


class TlsHandshakes:
    """Makes the protocols of one port: each begins with a handshake, and then goes on as what `make` makes.

    At most `most` handshakes go on at once, and each for at most `limit_s` seconds.
    """

    def __init__(
        self, make: Callable[..., asyncio.Protocol], context: ssl.SSLContext, *, most: int, limit_s: float
    ) -> None:
        self.make, self.context, self.most, self.limit_s = make, context, most, limit_s
        self.going_on: dict[_Handshake, None] = {}  # the oldest first

    def __call__(self, *args: Any, **kwargs: Any) -> asyncio.Protocol:
        return _Handshake(self, self.make(*args, **kwargs))


class _Handshake(asyncio.Protocol):
    """A connection whose client has not finished its handshake."""

    def __init__(self, port: TlsHandshakes, inner: asyncio.Protocol) -> None:
        self._port, self._inner = port, inner
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._early = bytearray()  # what came before the handshake reads
        self._reason = "client"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        if len(self._port.going_on) >= self._port.most:
            next(iter(self._port.going_on)).give_up()
        self._port.going_on[self] = None
        self._task = asyncio.get_running_loop().create_task(self._shake(transport))

    def data_received(self, data: bytes) -> None:
        self._early += data

    def connection_lost(self, exc: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def give_up(self) -> None:
        """Ends the connection, because another one needs its place."""
        self._port.going_on.pop(self, None)
        self._reason = "displaced"
        assert self._transport is not None
        self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        opened, secured = _Opened(self._inner), None
        try:
            secured = await self._secured(transport, opened)
        except ConnectionAbortedError:  # the event loop's word for a handshake that takes too long
            self._reason = "time" if self._reason == "client" else self._reason
        except (OSError, asyncio.CancelledError):  # also of TLS itself; cancelled: the client has left
            pass
        self._port.going_on.pop(self, None)
        if secured is not None and not secured.is_closing():
            opened.open(secured)
        else:
            UNFINISHED.labels(self._reason).inc()
            transport.abort()

    async def _secured(self, transport: asyncio.Transport, opened: "_Opened") -> asyncio.Transport | None:
        """Does the handshake. An event loop begins to read as soon as there is a connection, so that the client's first
        bytes may be here already: they are handed on before anything else is read."""
        loop = asyncio.get_running_loop()
        shaking = loop.create_task(
            loop.start_tls(
                transport, opened, self._port.context, server_side=True, ssl_handshake_timeout=self._port.limit_s
            )
        )
        try:
            for _ in range(2):  # after the first it has stopped reading, after the second it would read again
                await asyncio.sleep(0)
            if self._early and not transport.is_closing():
                reader: Any = transport.get_protocol()
                while self._early:
                    room = reader.get_buffer(len(self._early))
                    size = min(len(room), len(self._early))
                    room[:size] = self._early[:size]
                    del self._early[:size]
                    reader.buffer_updated(size)
            return await shaking
        finally:
            shaking.cancel()


class _Opened(asyncio.Protocol):
    """Keeps what comes between a handshake and the moment at which its task goes on: the event loop delivers it without
    saying first that there is a connection."""

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self._early: list[Callable[[], Any]] = []

    def open(self, transport: asyncio.Transport) -> None:
        transport.set_protocol(self._inner)
        self._inner.connection_made(transport)
        for call in self._early:
            call()

    def data_received(self, data: bytes) -> None:
        self._early.append(lambda: self._inner.data_received(data))

    def eof_received(self) -> None:
        self._early.append(self._inner.eof_received)

    def connection_lost(self, exc: Exception | None) -> None:
        self._early.append(lambda: self._inner.connection_lost(exc))
