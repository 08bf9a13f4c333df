"""The gateway-worker stream between two processes of one host, over a Unix socket instead of gRPC.

A gRPC message costs hundreds of microseconds of CPU, most of it in threads that wake each other. Here a frame is its
length and its bytes, written and read by the event loop itself. The sockets are Linux's abstract ones, which need no
file. Each side asks the kernel for the user of the other one, and talks to processes of its own user only.
"""

import asyncio
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar, cast

import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from hmas.runtime.rpc import MAX_MESSAGE_BYTES

log = structlog.get_logger()

LENGTH_BYTES = 4
PING = bytes(LENGTH_BYTES)  # a frame of length 0
PING_S, SILENCE_S = 5.0, 13.0  # a silent peer is given up after the same time as by gRPC's keep-alive


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...


F = TypeVar("F")  # the type of the frames that are read


class FrameStream(asyncio.Protocol, Generic[F]):
    """One local connection, with the methods `read` and `write` of a gRPC stream call.

    `parse` makes a frame of its bytes. `made`, if given, is called with the stream when it is connected and must close
    it. Writing raises ConnectionError once the connection is closed.
    """

    def __init__(self, parse: Callable[[bytes], F], made: Callable[["FrameStream[F]"], None] | None = None) -> None:
        self._parse, self._made = parse, made
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        # Bounded by what one turn of the event loop reads, because the reader takes all waiting frames when it runs.
        self._frames: deque[F] = deque()
        self._buffer = bytearray()  # bytes of a frame that is not complete yet
        self._reader: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None  # set while the peer reads too slowly
        self._error: Exception | None = None
        self._heard_s = self._loop.time()
        self._ping: asyncio.TimerHandle | None = None

    @property
    def connected(self) -> bool:
        return self._transport is not None and self._error is None

    async def read(self) -> Any:
        """Returns the next frame, or grpc.aio.EOF if the peer closed the connection. Raises ConnectionError if the
        connection failed."""
        while not self._frames:
            if self._transport is None:
                if self._error is not None:
                    raise ConnectionResetError(str(self._error))
                return grpc.aio.EOF
            self._reader = self._loop.create_future()
            await self._reader
        return self._frames.popleft()

    async def write(self, frame: Message) -> None:
        """Sends a frame; waits only while the peer reads too slowly. Raises ConnectionError if the connection is
        closed."""
        data = frame.SerializeToString()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the local connection to the peer is closed")
        self._transport.write(len(data).to_bytes(LENGTH_BYTES) + data)
        if self._drained is not None:
            await asyncio.shield(self._drained)

    def close(self) -> None:
        """Closes the connection after all that was written is sent, unless the peer does not respond."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's class has all methods of it, but does not inherit
        if not _same_user(transport.get_extra_info("socket")):
            self._fail(PermissionError("the peer of the local stream runs as another user: run both as the same one"))
            return
        self._keep_alive()
        if self._made is not None:
            self._made(self)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        buffer, at = self._buffer, 0
        buffer += data
        while len(buffer) - at >= LENGTH_BYTES:
            end = at + LENGTH_BYTES + int.from_bytes(buffer[at : at + LENGTH_BYTES])
            if end - at > MAX_MESSAGE_BYTES:
                self._fail(ConnectionError(f"the peer sent a frame of more than {MAX_MESSAGE_BYTES} bytes"))
                return
            if end > len(buffer):
                break
            if end - at > LENGTH_BYTES:
                try:
                    self._frames.append(self._parse(bytes(buffer[at + LENGTH_BYTES : end])))
                except DecodeError as error:
                    self._fail(error)
                    return
            at = end
        del buffer[:at]
        if self._frames:
            self._wake_reader()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._error = self._error or error
        if self._ping is not None:
            self._ping.cancel()
        self.resume_writing()
        self._wake_reader()

    # -------------------------------------------------------------------------------------------------------------

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.abort()

    def _keep_alive(self) -> None:
        if self._transport is None:
            return
        if self._loop.time() - self._heard_s > SILENCE_S:
            self._fail(TimeoutError(f"the peer sent nothing for {SILENCE_S:g} s"))
            return
        if not self._transport.is_closing():
            self._transport.write(PING)
        self._ping = self._loop.call_later(PING_S, self._keep_alive)


class LocalListener(Generic[F]):
    """Accepts local connections under a name. `serve` is awaited with each one, which is closed when it returns."""

    def __init__(self, parse: Callable[[bytes], F], serve: Callable[[FrameStream[F]], Awaitable[None]]) -> None:
        self._parse, self._serve = parse, serve
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, name: str) -> bool:
        """Begins to listen under `name`. Returns false if that is impossible, as outside Linux; peers then use gRPC."""
        if sys.platform != "linux":
            return False
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_unix_server(lambda: FrameStream(self._parse, self._accept), _address(name))
        except OSError as error:
            log.warning("local_stream_unavailable", error=str(error), effect="gateways on this host use gRPC")
            return False
        return True

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, stream: FrameStream[F]) -> None:
        task = asyncio.create_task(self._converse(stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, stream: FrameStream[F]) -> None:
        try:
            await self._serve(stream)
        except OSError as error:  # includes time-outs
            log.info("local_stream_broken", error=repr(error))
        finally:
            stream.close()


async def connect_local(name: str, parse: Callable[[bytes], F]) -> FrameStream[F] | None:
    """Connects to the process that listens under `name`; None if no process of this host and user does."""
    if sys.platform != "linux":
        return None
    loop = asyncio.get_running_loop()
    peer = socket.socket(socket.AF_UNIX)
    peer.setblocking(False)
    try:
        await loop.sock_connect(peer, _address(name))  # uvloop cannot connect to an abstract address by itself
        _, stream = await loop.create_unix_connection(lambda: FrameStream(parse), sock=peer)
    except OSError:
        peer.close()
        return None
    return stream if stream.connected else None


def _address(name: str) -> str:
    return f"\0hmas.v1.{name}"


def _same_user(peer: socket.socket) -> bool:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    return bool(uid == os.geteuid())
