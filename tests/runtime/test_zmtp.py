"""ZeroMQ's transport: subscribers and publishers understand one another, and what is not ZMTP is refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from hmas.runtime.zmtp import GREETING, SUBSCRIBE_ALL, ZmtpError, ZmtpStream, connect

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]
MAX_BYTES = 10_000


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)  # type: ignore[misc]
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_messages_of_several_frames_and_any_length_arrive() -> None:
    sent = [[b"", b"12345678", b"x" * 5_000], [b"short"], [b"a"] * 8]
    heard = []

    async def publish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = ZmtpStream(reader, writer, MAX_BYTES)
        await stream.greet("PUB")
        heard.append(await stream.receive())
        for message in sent:
            stream.send(message)
        await writer.drain()

    async with listening(publish) as port:
        stream = await connect("127.0.0.1", port, "SUB", max_bytes=MAX_BYTES, timeout_s=5.0)
        stream.send([SUBSCRIBE_ALL])
        assert [await stream.receive() for _ in sent] == sent
        with pytest.raises(EOFError):
            await stream.receive()
        stream.close()
    assert heard == [[SUBSCRIBE_ALL]]


READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64), "does not speak ZMTP"),
        (GREETING.replace(b"NULL", b"CURV"), "does not speak ZMTP"),
        (GREETING + b"\x04\x06\x05ERROR", "refuses the handshake"),
        (GREETING + b"\x06" + (2**40).to_bytes(8, "big"), "at most"),
    ],
)
async def test_what_does_not_greet_is_refused(told: bytes, reason: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(told)
        await reader.read()

    async with listening(speak) as port:
        with pytest.raises(ZmtpError, match=reason):
            await connect("127.0.0.1", port, "SUB", max_bytes=MAX_BYTES, timeout_s=5.0)


@pytest.mark.parametrize(
    "told", [b"\x02" + (10**6).to_bytes(8, "big"), b"\x01\x01a" * 9], ids=["a large frame", "many frames"]
)
async def test_a_message_is_bounded(told: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING + READY + told)
        await reader.read()

    async with listening(speak) as port:
        stream = await connect("127.0.0.1", port, "SUB", max_bytes=MAX_BYTES, timeout_s=5.0)
        with pytest.raises(ZmtpError):
            await stream.receive()
        stream.close()


async def test_one_that_says_nothing_is_not_waited_for() -> None:
    async def hold(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(hold) as port:
        with pytest.raises(TimeoutError):
            await connect("127.0.0.1", port, "SUB", max_bytes=MAX_BYTES, timeout_s=0.1)
