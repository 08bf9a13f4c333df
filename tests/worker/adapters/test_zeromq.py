"""Connections over ZeroMQ: what does not speak it, says too much or goes away ends them at once."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import zmq
import zmq.asyncio

from hmas.mesh.ports import free_port
from hmas.worker.adapters.zeromq import Bounds, connected

BOUNDS = Bounds(max_bytes=10_000, max_waiting=10, timeout_s=2.0)  # where all cores are busy, connecting takes a second
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
async def test_what_does_not_greet_is_refused(context: zmq.asyncio.Context, told: bytes) -> None:
    begun_s = time.monotonic()
    async with listening(saying(told)) as address:
        with pytest.raises(OSError, match=r"no connection: |^$"):  # a TimeoutError has no text
            async with connected(context, zmq.SUB, address, replace(BOUNDS, timeout_s=0.5)):
                raise AssertionError("connected")
    assert time.monotonic() - begun_s < 5.0


async def test_a_port_that_nobody_listens_on_is_told_at_once(context: zmq.asyncio.Context) -> None:
    with pytest.raises(ConnectionError, match="CLOSED"):
        async with connected(context, zmq.DEALER, ("127.0.0.1", free_port()), replace(BOUNDS, timeout_s=60.0)):
            raise AssertionError("connected")


@pytest.mark.parametrize(
    "told", [b"\x02" + (20_000).to_bytes(8, "big") + bytes(20_000), b"\x01\x01a\x04\x02\x01a", b"\x00\xff"],
    ids=["a large frame", "a command within a message", "silence within a frame"],
)  # fmt: skip
async def test_what_is_no_message_ends_the_connection(context: zmq.asyncio.Context, told: bytes) -> None:
    async with listening(greeting_and(told)) as address, connected(context, zmq.SUB, address, BOUNDS) as connection:
        with pytest.raises(ConnectionError, match="DISCONNECTED"):
            await connection.receive()


async def test_a_host_that_says_nothing_any_more_is_lost(context: zmq.asyncio.Context) -> None:
    async with listening(greeting_and(b"")) as address, connected(context, zmq.SUB, address, BOUNDS) as connection:
        begun_s = time.monotonic()
        with pytest.raises(ConnectionError, match="DISCONNECTED"):
            await connection.receive()
        assert 1.9 < time.monotonic() - begun_s < 15.0


async def test_what_came_before_a_loss_is_received(context: zmq.asyncio.Context) -> None:
    sent = [[b"", b"12345678", b"x" * size] for size in (0, 255, 256, 5_000)]
    publisher = context.socket(zmq.XPUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    async with connected(context, zmq.SUB, ("localhost", port), BOUNDS) as connection:
        assert await publisher.recv() == b"\x01"  # it has subscribed to all
        for message in sent:
            await publisher.send_multipart(message)
        assert await connection.receive() == sent[0]
        publisher.close(linger=1_000)
        assert [await connection.receive() for _ in sent[1:]] == sent[1:]
        with pytest.raises(ConnectionError, match="DISCONNECTED"):
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
        async with connected(context, zmq.SUB, ("engine", port), BOUNDS):
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

    async with connected(context, zmq.SUB, ("127.0.0.1", port), BOUNDS) as connection:
        await publisher.recv()
        for _ in range(200):
            await publisher.send(b"x")
        await asyncio.sleep(0.1)
        other = asyncio.create_task(take_turns())
        for _ in range(200):
            await connection.receive()
        assert turns >= 190
        other.cancel()
    publisher.close(linger=0)
