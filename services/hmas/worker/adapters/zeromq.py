"""Connections by ZMTP 3.0, the protocol of ZeroMQ, that are made once: what fails or is lost is told at once, and is
not made again unasked.

libzmq would read a message of endlessly many frames into memory without a bound. Here a message is bounded as a whole;
what waits beyond it stays in the kernel's buffers, and then with the sender.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

SUBSCRIBER, DEALER = "SUB", "DEALER"
_PEERS = {SUBSCRIBER: (b"PUB", b"XPUB"), DEALER: (b"ROUTER", b"REP", b"DEALER")}
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_GREETING = _SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
_MORE, _LONG, _COMMAND = 1, 2, 4
_PING, _PONG = b"\x04PING", b"\x04PONG"
_ALL = b"\x01"  # subscribes to everything
_MAX_CONTEXT = 16  # bytes of a ping that come back with its answer
_MAX_UNREAD = 2**16  # bytes that the other side has not taken, above which its pings are not answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`max_bytes`: of a message; a larger one ends the connection. `max_frames`: of a message. `timeout_s`: for
    connecting, and after which a silent host is lost."""

    max_bytes: int
    timeout_s: float
    max_frames: int = 8


class Connection:
    """A socket that is connected to one other. Its methods raise ConnectionError where that has gone, or breaks the
    protocol or a bound."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bounds: Bounds) -> None:
        self._reader, self._writer, self._bounds = reader, writer, bounds
        self._waits_since_s: float | None = None  # for something to come; None: nobody reads
        self._beating = asyncio.ensure_future(self._beat())

    async def greet(self, kind: str) -> None:
        """Waits until both sides have agreed to talk."""
        self._writer.write(_GREETING)
        greeting = await self._read(10)
        if greeting[:1] != _SIGNATURE[:1] or greeting[9:] != _SIGNATURE[9:]:
            raise ConnectionError("what answers does not speak ZeroMQ")
        greeting += await self._read(54)
        if greeting[10] < 3 or greeting[12:32] != _GREETING[12:32]:
            raise ConnectionError("what answers speaks an older ZeroMQ, or asks for a security mechanism")
        self._writer.write(_frame(_property(b"\x05READY", b"Socket-Type", kind.encode()), _COMMAND))
        flags, ready = await self._frame(self._bounds.max_bytes)
        peers = [_property(b"", b"Socket-Type", peer)[12:] for peer in _PEERS[kind]]
        if not flags & _COMMAND or not ready.startswith(b"\x05READY") or not any(peer in ready for peer in peers):
            raise ConnectionError(f"what answers is no socket for {kind}")
        if kind == SUBSCRIBER:
            self._writer.write(_frame(_ALL))

    async def receive(self) -> list[bytes]:
        """Returns the next message, which is a list of frames. What had come before a loss is returned first. Many that
        have come leave the event loop its turns."""
        await asyncio.sleep(0)
        frames: list[bytes] = []
        left = self._bounds.max_bytes
        while True:
            flags, frame = await self._frame(left)
            if flags & _COMMAND:
                if frames:
                    raise ConnectionError("a command came within a message")
                self._obey(frame)
                continue
            frames.append(frame)
            left -= len(frame)
            if not flags & _MORE:
                return frames
            if len(frames) >= self._bounds.max_frames:
                raise ConnectionError(f"a message has more than {self._bounds.max_frames} frames")

    async def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames[:-1]:
            self._writer.write(_frame(frame, _MORE))
        self._writer.write(_frame(frames[-1]))
        await self._writer.drain()

    def close(self) -> None:
        self._beating.cancel()
        self._writer.transport.abort()

    def _obey(self, command: bytes) -> None:
        if command.startswith(_PING) and self._writer.transport.get_write_buffer_size() < _MAX_UNREAD:
            self._writer.write(_frame(_PONG + command[len(_PING) + 2 :][:_MAX_CONTEXT], _COMMAND))

    async def _frame(self, most: int) -> tuple[int, bytes]:
        flags, size = await self._read(2)
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise ConnectionError("what came is no frame")
        if flags & _LONG:
            size = int.from_bytes(bytes((size,)) + await self._read(7), "big")
        if size > most:
            raise ConnectionError(f"a message is larger than {self._bounds.max_bytes} bytes")
        return flags, await self._read(size)

    async def _read(self, size: int) -> bytes:
        self._waits_since_s = asyncio.get_running_loop().time()
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ConnectionError("the connection is lost") from None
        finally:
            self._waits_since_s = None

    async def _beat(self) -> None:
        """Asks for a sign of life now and then, and ends the connection where somebody waits and none comes."""
        timeout_s = self._bounds.timeout_s
        while True:
            await asyncio.sleep(timeout_s / 3.0)
            since_s = self._waits_since_s
            if since_s is not None and asyncio.get_running_loop().time() - since_s > timeout_s:
                self._reader.set_exception(ConnectionError("the other side is silent"))
                return
            self._writer.write(_frame(_PING + b"\x00\x00", _COMMAND))


def _frame(data: bytes, flags: int = 0) -> bytes:
    if len(data) > 255:
        return bytes((flags | _LONG,)) + len(data).to_bytes(8, "big") + data
    return bytes((flags, len(data))) + data


def _property(start: bytes, name: bytes, value: bytes) -> bytes:
    return start + bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


@asynccontextmanager
async def connected(kind: str, address: tuple[str, int], bounds: Bounds) -> AsyncIterator[Connection]:
    """Context manager for a connection of a socket of `kind` to host and port; a subscriber gets all that is published.
    Raises OSError, TimeoutError included, where it cannot be made."""
    host, port = address
    async with asyncio.timeout(bounds.timeout_s):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        connection = await _first(kind, [str(place[0]) for *_, place in found], port, bounds)
    try:
        yield connection
    finally:
        connection.close()


async def _first(kind: str, hosts: Sequence[str], port: int, bounds: Bounds) -> Connection:
    """Connects to the first host that can be; the last one's failure is raised."""
    for host in hosts[:-1]:
        with suppress(OSError):
            return await _one(kind, host, port, bounds)
    return await _one(kind, hosts[-1], port, bounds)


async def _one(kind: str, host: str, port: int, bounds: Bounds) -> Connection:
    connection = Connection(*await asyncio.open_connection(host, port), bounds)
    try:
        await connection.greet(kind)
    except BaseException:
        connection.close()
        raise
    return connection
