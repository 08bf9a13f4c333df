"""The connection between a gateway and a worker: protobuf frames, each after its length, over a Unix socket or TCP.

A connection is a pipe that may break at any time; what it carried is sent again by its owner. It closes itself if
the peer is silent, or if this process finds that it has not read for as long itself (it was stopped meanwhile): stale
frames are never acted upon. The Unix sockets are Linux's abstract ones, which need no file; each side asks the kernel
for the user of the other one, and talks to processes of its own user only.
"""

import asyncio
import os
import socket
import ssl
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol, cast

import structlog
from google.protobuf.message import DecodeError, Message

log = structlog.get_logger()

LENGTH_BYTES = 4
PING = bytes(LENGTH_BYTES)  # a frame of length 0
PING_S = 0.25
LAZY_S = 0.05  # how long a frame without anything urgent waits for others to be sent with it
MAX_FRAME_BYTES = 32 * 2**20
MAX_HELLO_BYTES = 65_536
MAX_UNSENT_BYTES = 32 * 2**20  # a peer that reads more slowly than that is cut off
MAX_OPERATIONS = 512  # in one frame, so that a long snapshot does not hold up what else the receiver reads
CONNECT_TIMEOUT_S = 3.0
HANDSHAKE_S = 3.0  # of TLS


class FrameSink(Protocol):
    """The owner of connections. It is called on the event loop and must not block."""

    def on_open(self, connection: "FrameConnection") -> None: ...

    def on_frame(self, connection: "FrameConnection", frame: Any) -> None: ...

    def on_closed(self, connection: "FrameConnection", reason: str) -> None:
        """Learns once of each connection that had been opened that it has ended, and why."""
        ...


class FrameConnection(asyncio.Protocol):
    """One connection. `read` and `written` are the protobuf classes of the frames in both directions; what a frame
    repeats is its field `ops`.

    What is added to `outgoing` between two turns of the event loop travels together. After `silence_s` seconds without
    a byte from the peer the connection closes; time in which this process did not run is not held against the peer.
    `local` tells whether the peer is on this host, and `peer`, which the owner sets, who it is. `max_frame_bytes`
    bounds the frames of the peer; the owner lowers it for a stranger. `certified` are the names in the peer's
    certificate, None without TLS.
    """

    def __init__(self, read: type[Message], written: type[Message], sink: FrameSink, silence_s: float) -> None:
        self._read, self._written, self._sink, self._silence_s = read, written, sink, silence_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # None before the connection is open, and after its end
        self._frame: Any = None  # gathers what goes out next
        self._urgent = False  # it goes out at the end of this turn
        self._lazy: asyncio.TimerHandle | None = None  # when it goes out otherwise
        self._buffer = bytearray()  # bytes of a frame that is not complete yet
        self._read_s = self._heard_s = self._ping_due_s = monotonic()
        self.local = False
        self.peer = ""
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.certified: frozenset[str] | None = None
        self.address = ""  # of the peer, for the log

    @property
    def silent_s(self) -> float:
        """The seconds for which the peer was not heard although this process listened: a ping that is overdue tells
        that it did not."""
        return max(0.0, min(monotonic(), self._ping_due_s) - self._heard_s)

    def outgoing(self, *, urgent: bool = True) -> Any:
        """Returns the frame that is sent next, to be filled: at the end of this turn of the event loop, or up to
        `LAZY_S` later if nothing in it is urgent. Each frame wakes the peer, which costs more than what is in it."""
        if self._frame is None:
            self._frame = self._written()
        elif len(self._frame.ops) >= MAX_OPERATIONS:
            self._write()
            self._frame = self._written()
        if urgent and not self._urgent:
            self._urgent = True
            self._loop.call_soon(self.flush)
        elif not urgent and not self._urgent and self._lazy is None:
            self._lazy = self._loop.call_later(LAZY_S, self.flush)
        return self._frame

    def close(self, reason: str) -> None:
        """Ends the connection and tells its owner, both at once; frames that were not sent are lost."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
            self._sink.on_closed(self, reason)

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("socket")
        self.local = peer.family == socket.AF_UNIX
        if not self.local:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        elif not _same_user(peer):
            cast(asyncio.Transport, transport).abort()
            return
        self.address = "local" if self.local else str(transport.get_extra_info("peername"))
        certificate = transport.get_extra_info("peercert")
        if certificate is not None:
            self.certified = frozenset(name for _, name in certificate.get("subjectAltName", ()))
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        self._read_s = self._heard_s = monotonic()
        self._ping_at(self._heard_s)
        self._sink.on_open(self)

    def data_received(self, data: bytes) -> None:
        unread_s = monotonic() - self._read_s
        self._read_s = self._heard_s = self._read_s + unread_s
        if unread_s > self._silence_s:
            self.close(f"nothing was read for {unread_s:.1f} s")
        buffer, at = self._buffer, 0
        buffer += data
        while self._transport is not None and len(buffer) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            end = start + int.from_bytes(buffer[at:start])
            if end - start > self.max_frame_bytes:
                self.close(f"the peer sent a frame of more than {self.max_frame_bytes} bytes")
            elif end > len(buffer):
                break
            elif end > start:
                self._take(bytes(buffer[start:end]))
            at = end
        del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        self.close(str(error or "the peer closed it"))

    # ---------------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        try:
            frame = self._read.FromString(data)
        except DecodeError as error:
            self.close(f"the peer sent a frame that cannot be decoded: {error}")
            return
        self._sink.on_frame(self, frame)

    def flush(self) -> None:
        """Sends what was added to `outgoing` as a frame, now."""
        if self._lazy is not None:
            self._lazy.cancel()
        self._lazy, self._urgent = None, False
        if self._frame is not None:
            self._write()
            self._frame = None

    def _write(self) -> None:
        if self._transport is None:
            return
        data = self._frame.SerializeToString()
        if self._transport.get_write_buffer_size() + len(data) > MAX_UNSENT_BYTES:
            # The owner may be in the midst of a message, and is not to learn of the end before it is done with it.
            self._loop.call_soon(self.close, f"more than {MAX_UNSENT_BYTES} bytes wait to be sent")
            return
        self._transport.write(len(data).to_bytes(LENGTH_BYTES) + data)

    def _ping_at(self, now_s: float) -> None:
        self._ping_due_s = now_s + PING_S
        self._loop.call_later(PING_S, self._keep_alive)

    def _keep_alive(self) -> None:
        if self._transport is None:
            return
        silent_s, now_s = self.silent_s, monotonic()
        if silent_s > self._silence_s:
            self.close(f"nothing was heard for {silent_s:.1f} s")
            return
        self._heard_s = now_s - silent_s
        self._transport.write(PING)
        self._ping_at(now_s)


class FrameListener:
    """Accepts connections over TCP and, from processes of this host and user, over a Unix socket."""

    def __init__(self, connection: Callable[[], FrameConnection], tls: ssl.SSLContext | None = None) -> None:
        self._connection, self._tls = connection, tls
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int) -> int:
        """Listens at `host` and `port` and returns the port. Raises OSError if it is taken."""
        within_s = None if self._tls is None else HANDSHAKE_S
        server = await asyncio.get_running_loop().create_server(
            self._connection, host, port, ssl=self._tls, ssl_handshake_timeout=within_s
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def start_local(self, name: str) -> None:
        """Also listens under `name` on this host, where that is possible; peers use TCP elsewhere."""
        if sys.platform != "linux":
            return
        try:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_unix_server(self._connection, _address(name)))
        except OSError as error:
            log.warning("local_stream_unavailable", error=str(error), effect="gateways on this host use TCP")

    def close(self) -> None:
        for server in self._servers:
            server.close()


async def connect(
    address: str, connection: Callable[[], FrameConnection], tls: ssl.SSLContext | None = None, name: str | None = None
) -> FrameConnection:
    """Connects to the process of this host and user that listens locally under `address` (host:port), otherwise over
    TCP. With `tls`, the certificate of a TCP peer must be for `name`. Raises OSError, which includes time-outs and a
    certificate that is refused, and ValueError if the address has no port."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        if sys.platform == "linux":
            with socket.socket(socket.AF_UNIX) as peer, suppress(OSError):
                peer.setblocking(False)
                await loop.sock_connect(peer, _address(address))  # uvloop cannot connect to such an address by itself
                if _same_user(peer):
                    return (await loop.create_unix_connection(connection, sock=peer.dup()))[1]
        name = name if tls is not None else None
        return (await loop.create_connection(connection, host.strip("[]"), int(port), ssl=tls, server_hostname=name))[1]


def _address(name: str) -> str:
    return f"\0hmas.v2.{name}"


def _same_user(peer: Any) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())
