"""The connection between a gateway and a worker: protobuf frames, each after its length, over a Unix socket or TCP.

A connection is a pipe that may break at any time; what it carried is told again by whoever owns it. It closes itself if
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
from typing import Any, Generic, Protocol, TypeVar, cast

import structlog
from google.protobuf.message import DecodeError, Message

log = structlog.get_logger()

LENGTH_BYTES = 4
PING = bytes(LENGTH_BYTES)  # a frame of length 0
PING_S = 0.25
MAX_FRAME_BYTES = 32 * 2**20
MAX_UNSENT_BYTES = 32 * 2**20  # a peer that reads more slowly than that is cut off
CONNECT_TIMEOUT_S = 3.0

F = TypeVar("F", bound=Message)  # the frames that are read


class FrameSink(Protocol):
    """The owner of connections. It is called on the event loop and must not block."""

    def on_open(self, connection: "FrameConnection[Any]") -> None: ...

    def on_frame(self, connection: "FrameConnection[Any]", frame: Any) -> None: ...

    def on_closed(self, connection: "FrameConnection[Any]", reason: str) -> None:
        """Learns once that a connection which had been opened has ended, and why."""
        ...


class FrameConnection(asyncio.Protocol, Generic[F]):
    """One connection. `read` and `written` are the protobuf classes of the frames in both directions.

    What is added to `outgoing` between two turns of the event loop travels in one frame. After `silence_s` seconds
    without a byte from the peer the connection closes.
    """

    def __init__(self, read: type[F], written: type[Message], sink: FrameSink, silence_s: float) -> None:
        self._read, self._written, self._sink, self._silence_s = read, written, sink, silence_s
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frame: Any = None  # gathers what goes out at the end of this turn
        self._buffer = bytearray()  # bytes of a frame that is not complete yet
        self._reason = "the peer closed it"
        self._ping: asyncio.TimerHandle | None = None
        self.heard_s = self._loop.time()
        self.local = False

    @property
    def silent_s(self) -> float:
        """The seconds since the peer was last heard."""
        return self._loop.time() - self.heard_s

    def outgoing(self) -> Any:
        """Returns the frame that is sent at the end of this turn of the event loop, to be filled."""
        if self._frame is None:
            self._frame = self._written()
            self._loop.call_soon(self._flush)
        return self._frame

    def close(self, reason: str) -> None:
        """Ends the connection at once; frames that were not sent are lost."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._reason = reason
            transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its bases
        peer = transport.get_extra_info("socket")
        self.local = peer is not None and peer.family == socket.AF_UNIX
        if self.local and not _same_user(peer):
            self._transport.abort()
            self._transport = None
            return
        if peer is not None and not self.local:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heard_s = self._loop.time()
        self._ping = self._loop.call_later(PING_S, self._keep_alive)
        self._sink.on_open(self)

    def data_received(self, data: bytes) -> None:
        silent_s, self.heard_s = self.silent_s, self._loop.time()
        if silent_s > self._silence_s:
            self.close(f"nothing was read for {silent_s:.1f} s")
        buffer, at = self._buffer, 0
        buffer += data
        while self._transport is not None and len(buffer) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(buffer[at : at + LENGTH_BYTES])
            if end - at > MAX_FRAME_BYTES:
                self.close(f"the peer sent a frame of more than {MAX_FRAME_BYTES} bytes")
            elif end > len(buffer):
                break
            elif end - at > LENGTH_BYTES:
                self._take(bytes(buffer[at + LENGTH_BYTES : end]))
            at = end
        del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        opened, self._ping = self._ping, None
        if opened is None:
            return
        opened.cancel()
        self._transport = None
        self._sink.on_closed(self, str(error) if error is not None else self._reason)

    # ---------------------------------------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        try:
            frame = self._read.FromString(data)
        except DecodeError as error:
            self.close(f"the peer sent a frame that cannot be decoded: {error}")
            return
        self._sink.on_frame(self, frame)

    def _flush(self) -> None:
        frame, self._frame = self._frame, None
        if self._transport is None:
            return
        data = frame.SerializeToString()
        if self._transport.get_write_buffer_size() + len(data) > MAX_UNSENT_BYTES:
            self.close(f"more than {MAX_UNSENT_BYTES} bytes wait to be sent")
            return
        self._transport.write(len(data).to_bytes(LENGTH_BYTES) + data)

    def _keep_alive(self) -> None:
        if self._transport is None:
            return
        if self.silent_s > self._silence_s:
            self.close(f"nothing was heard for {self.silent_s:.1f} s")
            return
        self._transport.write(PING)
        self._ping = self._loop.call_later(PING_S, self._keep_alive)


class FrameListener:
    """Accepts connections over TCP and, from processes of this host and user, over a Unix socket."""

    def __init__(self, connection: Callable[[], FrameConnection[Any]], tls: ssl.SSLContext | None = None) -> None:
        self._connection, self._tls = connection, tls
        self._servers: list[asyncio.Server] = []

    async def start(self, host: str, port: int) -> int:
        """Listens at `host` and `port` and returns the port. Raises OSError if it is taken."""
        server = await asyncio.get_running_loop().create_server(self._connection, host, port, ssl=self._tls)
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
    name: str, address: str, connection: Callable[[], FrameConnection[F]], tls: ssl.SSLContext | None = None
) -> FrameConnection[F]:
    """Connects to the process that listens under `name` on this host and for this user, otherwise to `address`
    (host:port). Raises OSError, which includes time-outs."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        if sys.platform == "linux":
            peer = socket.socket(socket.AF_UNIX)
            peer.setblocking(False)
            try:
                await loop.sock_connect(peer, _address(name))  # uvloop cannot connect to an abstract address by itself
                _, made = await loop.create_unix_connection(connection, sock=peer)
            except OSError:
                peer.close()
            else:
                return made
        host, _, port = address.rpartition(":")
        _, made = await loop.create_connection(connection, host, int(port), ssl=tls)
    return made


def _address(name: str) -> str:
    return f"\0hmas.v2.{name}"


def _same_user(peer: Any) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())
