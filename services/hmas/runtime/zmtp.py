"""ZeroMQ's transport, as far as subscribers and publishers need it: ZMTP 3.0 with the NULL mechanism, over asyncio.

A connection is a TCP stream that ends when the other side does, so that its loss is seen at once; nothing is queued
here, and a message is bounded in size. libzmq speaks this version to those that do not speak a later one
(https://rfc.zeromq.org/spec/23).
"""

import asyncio
import struct
from collections.abc import Sequence

MORE, LONG, COMMAND = 1, 2, 4  # flags of a frame
MAX_FRAMES = 8  # of a message
HANDSHAKE_BYTES = 1_024  # most of a command
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
SUBSCRIBE_ALL = b"\x01"


class ZmtpError(Exception):
    """Raised where the other side does not speak ZMTP 3 without security, or sends more than is allowed."""


class ZmtpStream:
    """One connection, after its handshake. `max_bytes`: of a frame; a larger one ends the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes

    async def greet(self, kind: str) -> None:
        """Opens the conversation as a socket of this kind: SUB, PUB, DEALER or ROUTER. Raises ZmtpError, or EOFError
        and OSError if the connection ends."""
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind.encode()
        self._writer.write(GREETING)
        greeting = await self._reader.readexactly(len(GREETING))
        if greeting[0] != 0xFF or not greeting[9] & 1 or greeting[10] < 3 or greeting[12:32].rstrip(b"\0") != b"NULL":
            raise ZmtpError("the other side does not speak ZMTP 3 with the NULL mechanism")
        self._writer.write(_frame(COMMAND, ready))
        flags, body = await self._frame(HANDSHAKE_BYTES)
        if not flags & COMMAND or not body.startswith(b"\x05READY"):
            raise ZmtpError(f"the other side refuses the handshake: {body[:80]!r}")

    async def receive(self) -> list[bytes]:
        """Returns the next message, which is a list of frames. Raises as `greet` does."""
        frames: list[bytes] = []
        while True:
            flags, body = await self._frame(self._max_bytes)
            if flags & COMMAND:
                continue
            frames.append(body)
            if not flags & MORE:
                return frames
            if len(frames) >= MAX_FRAMES:
                raise ZmtpError(f"a message has more than {MAX_FRAMES} frames")

    def send(self, frames: Sequence[bytes]) -> None:
        """Writes a message, without waiting."""
        last = len(frames) - 1
        self._writer.write(b"".join(_frame(MORE if i < last else 0, frame) for i, frame in enumerate(frames)))

    @property
    def backlog(self) -> int:
        """The bytes that were written and that the connection has not taken."""
        return self._writer.transport.get_write_buffer_size()

    def close(self) -> None:
        self._writer.close()

    async def _frame(self, max_bytes: int) -> tuple[int, bytes]:
        flags, size = await self._reader.readexactly(2)
        if flags & LONG:
            size = int.from_bytes(bytes([size]) + await self._reader.readexactly(7), "big")
        if size > max_bytes:
            raise ZmtpError(f"a frame of {size} bytes, of at most {max_bytes}")
        return flags, await self._reader.readexactly(size)


async def connect(host: str, port: int, kind: str, *, max_bytes: int, timeout_s: float) -> ZmtpStream:
    """Connects to a socket that listens. Raises ZmtpError, EOFError, OSError, or TimeoutError."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
        stream = ZmtpStream(reader, writer, max_bytes)
        try:
            await stream.greet(kind)
        except BaseException:
            stream.close()
            raise
        return stream


def _frame(flags: int, body: bytes) -> bytes:
    if len(body) > 255:
        return bytes([flags | LONG]) + struct.pack(">Q", len(body)) + body
    return bytes([flags, len(body)]) + body
