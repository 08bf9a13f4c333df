"""Connections over ZeroMQ: what does not speak it, says too much or goes away ends them at once."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import zmq
import zmq.asyncio

from hmas.mesh.ports import free_port
from hmas.worker.adapters import zeromq
from hmas.worker.adapters.zeromq import DEALER, SUBSCRIBER, Bounds, connected
from tests.conftest import PATIENCE_S, eventually

BOUNDS = Bounds(max_bytes=10_000, timeout_s=PATIENCE_S)
HASTY = replace(BOUNDS, timeout_s=3.0)  # where all cores are busy, connecting takes a second
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@pytest.fixture
async def context() -> AsyncIterator[zmq.asyncio.Context]:
    context = zmq.asyncio.Context()
    yield context
    context.destroy(linger=0)


@asynccontextmanager
async def listening(speak: Speak) -> AsyncIterator[tuple[str, int]]:
    """A TCP server that is no libzmq."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await speak(reader, writer)
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[:2]
    finally:
        server.close()


def saying(told: bytes) -> Speak:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(told)

    return speak


def greeting_and(told: bytes) -> Speak:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING + READY)
        await reader.readuntil(b"Socket-Type")
        writer.write(told)

    return speak


@pytest.mark.parametrize(
    "told",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64), b"HTTP/1.1 400\r\n\r\n", b"", b"\xff",
        GREETING.replace(b"NULL", b"CURV"), GREETING + b"\x04\x06\x05ERROR", GREETING + READY.replace(b"PUB", b"REP"),
        GREETING + b"\x06" + (2**40).to_bytes(8, "big"),
    ],
    ids=["HTTP", "short HTTP", "nothing", "a byte", "security", "an error", "another socket", "a command of 1 TB"],
)  # fmt: skip
async def test_what_does_not_greet_is_refused(told: bytes) -> None:
    async with listening(saying(told)) as address:
        refused = r"what answers|connection is lost|larger than|is no frame|^$"  # a TimeoutError has no text
        with pytest.raises(OSError, match=refused):
            async with connected(SUBSCRIBER, address, replace(BOUNDS, timeout_s=0.5)):
                raise AssertionError("connected")


async def test_a_port_that_nobody_listens_on_is_told_at_once() -> None:
    with pytest.raises(ConnectionError, match=r"Connect call failed|refused"):
        async with connected(DEALER, ("127.0.0.1", free_port()), replace(BOUNDS, timeout_s=60.0)):
            raise AssertionError("connected")


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"\x02" + (20_000).to_bytes(8, "big") + bytes(20_000), "larger than 10000 bytes"),
        (b"\x02" + (2**63).to_bytes(8, "big"), "larger than 10000 bytes"),
        ((b"\x03" + (4_000).to_bytes(8, "big") + bytes(4_000)) * 3, "larger than 10000 bytes"),
        (b"\x01\x00" * 9, "more than 8 frames"), (b"\x01\x01a\x04\x02\x01a", "a command came within a message"),
        (b"\x00\xff", "silent"), (b"\x08\x00", "no frame"),
    ],
    ids=["a large frame", "a larger frame", "many large frames", "endless frames", "a command within a message",
         "silence within a frame", "a flag that is none"],
)  # fmt: skip
async def test_what_is_no_message_ends_the_connection(told: bytes, reason: str) -> None:
    async with listening(greeting_and(told)) as address, connected(SUBSCRIBER, address, HASTY) as connection:
        with pytest.raises(ConnectionError, match=reason):
            await connection.receive()


@pytest.mark.parametrize(("most", "answer"), [(0, b""), (1, b"\x04\x07\x04PONGhi")])
async def test_who_pings_without_reading_is_not_answered(
    most: int, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "_MAX_UNREAD", most)  # 0: as if the other side had taken nothing
    heard = asyncio.Queue[bytes]()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greeting_and(b"\x04\x09\x04PING\x00\x00hi\x00\x01x")(reader, writer)
        await reader.readuntil(b"\x00\x01\x01")  # it subscribes
        heard.put_nowait(await reader.readuntil(b"end"))

    bounds = replace(BOUNDS, timeout_s=60.0)
    async with listening(speak) as address, connected(SUBSCRIBER, address, bounds) as connection:
        assert await connection.receive() == [b"x"]
        await connection.send([b"end"])
        assert await heard.get() == answer + b"\x00\x03end"


async def test_a_host_that_says_nothing_any_more_is_lost() -> None:
    async with listening(greeting_and(b"")) as address, connected(SUBSCRIBER, address, HASTY) as connection:
        with pytest.raises(ConnectionError, match=r"silent|lost"):
            await connection.receive()


async def test_what_came_before_a_loss_is_received(context: zmq.asyncio.Context) -> None:
    sent = [[b"", b"12345678", b"x" * size] for size in (0, 255, 256, 5_000)]
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    async with connected(SUBSCRIBER, ("localhost", port), BOUNDS) as connection:
        assert await publisher.recv() == b"\x01"  # it has subscribed to all
        for message in sent:
            await publisher.send_multipart(message)
        assert await connection.receive() == sent[0]
        publisher.close(linger=1_000)
        assert [await connection.receive() for _ in sent[1:]] == sent[1:]
        with pytest.raises(ConnectionError, match=r"silent|lost"):
            await connection.receive()


@pytest.mark.parametrize("bound", ["tcp://127.0.0.1", "tcp://[::1]"])
async def test_each_address_of_a_name_is_tried(
    context: zmq.asyncio.Context, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [(family, socket.SOCK_STREAM, 6, "", (host, 0)) for family, host in (
        (socket.AF_INET6, "::1"), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")
    )]  # fmt: skip

    async def both(*_: Any, **__: Any) -> Any:
        return places

    with context.socket(zmq.PUB) as publisher:
        publisher.ipv6 = True
        port = publisher.bind_to_random_port(bound)
        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", both)
        async with connected(SUBSCRIBER, ("engine", port), BOUNDS):
            pass


async def test_many_messages_leave_other_tasks_their_turns(context: zmq.asyncio.Context) -> None:
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with connected(SUBSCRIBER, ("127.0.0.1", port), BOUNDS) as connection:
        await publisher.recv()
        for _ in range(200):
            await publisher.send(b"x")
        come: Any = connection._reader
        await eventually(lambda: len(come._buffer) == 200 * len(b"\x00\x01x"))
        other = asyncio.create_task(take_turns())
        for _ in range(200):
            await connection.receive()
        assert turns >= 190
        other.cancel()
    publisher.close(linger=0)
