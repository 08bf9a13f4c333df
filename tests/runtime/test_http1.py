"""The HTTP client against a scripted server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from hmas.runtime.http1 import HttpExchange, HttpPool, PoolConfig
from tests.conftest import PATIENCE_S, eventually
from tests.worker.adapters.scripted_engine import Peer, ScriptedEngine


class Collected:
    """A reply that keeps what it hears."""

    def __init__(self) -> None:
        self.status = 0
        self.body = b""
        self.failure = ""
        self.over = asyncio.Event()
        self.some = asyncio.Event()

    def on_head(self, status: int) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        self.body += data
        self.some.set()

    def on_complete(self) -> None:
        assert not self.over.is_set()
        self.over.set()

    def on_failure(self, reason: str) -> None:
        assert not self.over.is_set()
        self.failure = reason
        self.over.set()


Send = Callable[..., tuple[HttpExchange, Collected]]


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    server = ScriptedEngine()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def pool(engine: ScriptedEngine) -> AsyncIterator[HttpPool]:
    pool = HttpPool("127.0.0.1", engine.port, None, PoolConfig(max_connections=2))
    yield pool
    await pool.close()


def send(pool: HttpPool, body: bytes = b"") -> tuple[HttpExchange, Collected]:
    reply = Collected()
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return pool.send(head, body, reply), reply


async def ended(reply: Collected) -> Collected:
    await asyncio.wait_for(reply.over.wait(), PATIENCE_S)
    return reply


async def test_a_body_with_a_length_and_the_connection_used_again(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def echo(peer: Peer) -> None:
        await peer.reply(peer.body, status=201)

    engine.script["/"] = echo
    for body in (b"one", b"x" * 300_000):
        reply = await ended(send(pool, body)[1])
        assert (reply.status, reply.body, reply.failure) == (201, body, "")
    assert engine.connections == 1


async def test_connections_that_only_a_burst_needed_are_closed(engine: ScriptedEngine) -> None:
    arrived = asyncio.Barrier(3)

    async def answer(peer: Peer) -> None:
        await arrived.wait()  # three at once
        await peer.reply(b"")

    engine.script["/"] = answer
    pool = HttpPool("127.0.0.1", engine.port, None, PoolConfig(keepalive_s=0.2))
    for reply in [send(pool)[1] for _ in range(3)]:
        await ended(reply)
    assert engine.connections == 3
    await eventually(lambda: all(peer.reader.at_eof() for peer in engine.requests))
    await pool.close()


async def test_a_chunked_body_split_anywhere(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            await peer.write(bytes([byte]))
            await asyncio.sleep(0)

    engine.script["/"] = answer
    for _ in range(2):
        assert (await ended(send(pool)[1])).body == b"abcde"
    assert engine.connections == 1


async def test_a_body_that_ends_with_its_connection(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        peer.writer.close()

    engine.script["/"] = answer
    reply = await ended(send(pool)[1])
    assert (reply.body, reply.failure) == (b"all of it", "")


@pytest.mark.parametrize("head", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
async def test_a_body_cut_short_is_a_failure(engine: ScriptedEngine, pool: HttpPool, head: bytes) -> None:
    async def answer(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n5\r\nabc")
        peer.writer.close()

    engine.script["/"] = answer
    reply = await ended(send(pool)[1])
    assert reply.failure == "the connection to the engine was lost before the answer was complete: the engine closed it"
    assert len(engine.requests) == 1


async def test_interim_answers_are_skipped(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await peer.reply(b"late")

    engine.script["/"] = answer
    reply = await ended(send(pool)[1])
    assert (reply.status, reply.body) == (200, b"late")


@pytest.mark.parametrize(
    "more", [b"HTTP/1.1 408 Late\r\nContent-Length: 3\r\n\r\nbad", b"HTTP/1.1 100 Continue\r\n\r\n", b"no HTTP"]
)
async def test_what_follows_an_answer_unasked_is_not_a_part_of_it(
    engine: ScriptedEngine, pool: HttpPool, more: bytes
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + more)
        await peer.gone()

    engine.script["/"] = answer
    for _ in range(2):
        reply = await ended(send(pool)[1])
        assert (reply.status, reply.body, reply.failure) == (200, b"ok", "")
    assert engine.connections == 2  # the first is not used again


async def test_a_connection_that_the_server_closes_is_not_used_again(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        await peer.reply(b"bye", extra="Connection: close\r\n")

    engine.script["/"] = answer
    for _ in range(2):
        assert (await ended(send(pool)[1])).body == b"bye"
    assert engine.connections == 2


async def test_a_stale_connection_is_replaced_once(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        if len(engine.requests) == 2:
            peer.writer.transport.abort()  # as a server does whose keep-alive ran out meanwhile
            raise ConnectionError
        await peer.reply(b"ok")

    engine.script["/"] = answer
    await ended(send(pool)[1])
    reply = await ended(send(pool, b"again")[1])
    assert (reply.body, reply.failure) == (b"ok", "")
    assert [peer.connection for peer in engine.requests] == [1, 1, 2]
    assert engine.requests[2].body == b"again"


async def test_a_fresh_connection_that_breaks_is_not_retried(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        raise ConnectionError

    engine.script["/"] = answer
    exchange, reply = send(pool)
    assert (await ended(reply)).failure.startswith("the connection to the engine was lost")
    assert not exchange.unreached
    assert len(engine.requests) == 1


async def test_a_partly_answered_request_is_not_retried(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        if len(engine.requests) == 2:
            await peer.write(b"HTTP/1.1 200")
            raise ConnectionError
        await peer.reply(b"ok")

    engine.script["/"] = answer
    await ended(send(pool)[1])
    assert (await ended(send(pool)[1])).failure.startswith("the connection to the engine was lost")
    assert len(engine.requests) == 2


async def test_aborting_closes_the_connection_and_silences_the_reply(engine: ScriptedEngine, pool: HttpPool) -> None:
    freed = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.begin_chunks()
        await peer.chunk(b"first")
        await peer.gone()
        freed.set()

    engine.script["/"] = answer
    exchange, reply = send(pool)
    await asyncio.wait_for(reply.some.wait(), PATIENCE_S)
    assert exchange.request == (b"", b"")  # an answer has begun, so that the body is of no more use
    exchange.abort()
    await asyncio.wait_for(freed.wait(), PATIENCE_S)
    assert not reply.over.is_set()


async def test_requests_beyond_the_bound_wait_for_a_connection(engine: ScriptedEngine, pool: HttpPool) -> None:
    go = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await go.wait()
        await peer.reply(peer.body)

    engine.script["/"] = answer
    sent = [send(pool, str(i).encode()) for i in range(5)]
    sent[3][0].abort()
    assert sent[3][0].request == (b"", b"")  # it waits for a connection without its body
    while len(engine.requests) < 2:
        await asyncio.sleep(0.001)
    go.set()
    bodies = [(await ended(reply)).body for i, (_, reply) in enumerate(sent) if i != 3]
    assert bodies == [b"0", b"1", b"2", b"4"]
    assert engine.connections == 2


async def test_nobody_listening_fails_every_request(engine: ScriptedEngine, pool: HttpPool) -> None:
    await engine.stop()
    sent = [send(pool) for _ in range(5)]
    for exchange, reply in sent:
        assert "Connect" in (await ended(reply)).failure
        assert exchange.unreached


async def test_what_is_not_http_is_a_failure(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def answer(peer: Peer) -> None:
        await peer.write(b"220 smtp.example ESMTP\r\n")
        await peer.gone()

    engine.script["/"] = answer
    assert (await ended(send(pool)[1])).failure.startswith("the engine's answer is not valid HTTP")


async def test_a_retired_pool_closes_each_connection_once_it_is_free(engine: ScriptedEngine, pool: HttpPool) -> None:
    closed = [asyncio.Event(), asyncio.Event()]
    go = asyncio.Event()

    async def answer(peer: Peer) -> None:
        if peer.body == b"long":
            await go.wait()
        await peer.reply(peer.body)
        await peer.gone()
        closed[peer.body == b"long"].set()

    engine.script["/"] = answer
    long = send(pool, b"long")[1]
    await ended(send(pool, b"short")[1])
    pool.retire()
    await asyncio.wait_for(closed[0].wait(), PATIENCE_S)
    go.set()
    assert (await ended(long)).body == b"long"
    await asyncio.wait_for(closed[1].wait(), PATIENCE_S)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 4096),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 500),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 500),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 500),
    ],
)
async def test_what_surrounds_a_body_is_bounded(
    engine: ScriptedEngine, pool: HttpPool, first: bytes, then: bytes
) -> None:
    sent = 0

    async def endless(peer: Peer) -> None:
        nonlocal sent
        await peer.write(first)
        while sent < 200 * 2**20:
            await peer.write(then)
            sent += len(then)

    engine.script["/"] = endless
    _, reply = send(pool)
    async with asyncio.timeout(PATIENCE_S):
        await reply.over.wait()
    assert "head or trailer of more than 65536 bytes" in reply.failure
    assert sent < 20 * 2**20


async def test_what_stands_between_the_parts_of_a_body_does_not_add_up(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def wordy(peer: Peer) -> None:
        await peer.begin_chunks()
        for _ in range(60):
            await peer.write(b"1;extension=" + b"x" * 2048 + b"\r\n")
            await asyncio.sleep(0.005)
            await peer.write(b"a\r\n")
            await asyncio.sleep(0.005)
        await peer.end_chunks()

    engine.script["/"] = wordy
    _, reply = send(pool)
    async with asyncio.timeout(PATIENCE_S):
        await reply.over.wait()
    assert (reply.body, reply.failure) == (b"a" * 60, "")


async def test_an_answer_that_changes_the_protocol_is_a_failure(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def upgrade(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc")
        await peer.gone()

    engine.script["/"] = upgrade
    _, reply = send(pool)
    async with asyncio.timeout(PATIENCE_S):
        await reply.over.wait()
    assert "not valid HTTP" in reply.failure


async def test_an_answer_that_is_cut_short_is_a_failure(engine: ScriptedEngine, pool: HttpPool) -> None:
    async def cut(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
        raise ConnectionError

    engine.script["/"] = cut
    _, reply = send(pool)
    async with asyncio.timeout(PATIENCE_S):
        await reply.over.wait()
    assert "before the answer was complete" in reply.failure


@pytest.mark.parametrize("host", ["a..b", f"{'a' * 64}.example"])
async def test_a_host_that_cannot_be_a_name_fails_every_request(host: str) -> None:
    pool = HttpPool(host, 80, None, PoolConfig(max_connections=1))
    for exchange, reply in [send(pool), send(pool)]:  # the second waits for a connection
        assert "its host cannot be a name" in (await ended(reply)).failure
        assert exchange.unreached
    await pool.close()


async def test_a_connection_that_is_lost_before_anything_was_sent_says_nothing_of_the_engine(
    engine: ScriptedEngine,
) -> None:
    class Losing(HttpPool):
        def opened(self, connection: Any) -> None:
            super().opened(connection)
            connection.abort()

    pool = Losing("127.0.0.1", engine.port, None, PoolConfig())
    exchange, reply = send(pool)
    assert (await ended(reply)).failure == "the engine closed the connection before the request was sent"
    assert exchange.unreached
    await pool.close()


async def test_a_request_that_an_engine_read_before_it_died_has_reached_it(
    engine: ScriptedEngine, pool: HttpPool
) -> None:
    async def answer(peer: Peer) -> None:
        if len(engine.requests) == 1:
            await peer.reply(b"ok")
            return
        assert engine._server is not None
        engine._server.close()  # nobody listens any more when the request is sent once again
        raise ConnectionError

    engine.script["/"] = answer
    await ended(send(pool)[1])
    exchange, reply = send(pool)
    assert (await ended(reply)).failure.startswith("could not connect to the engine")
    assert (len(engine.requests), exchange.retried, exchange.unreached) == (2, True, False)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_reply_that_aborts_at_the_head_hears_nothing_of_the_body_in_the_same_read(
    engine: ScriptedEngine, pool: HttpPool, whole: bool
) -> None:
    class Refusing(Collected):
        def on_head(self, status: int) -> None:
            super().on_head(status)
            exchange.abort()

    gone = asyncio.Event()

    async def answer(peer: Peer) -> None:
        await peer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nbody" % (4 if whole else 5))
        await peer.gone()
        gone.set()

    engine.script["/"] = answer
    reply = Refusing()
    exchange = pool.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b"", reply)
    await asyncio.wait_for(gone.wait(), PATIENCE_S)
    assert (reply.status, reply.body, reply.failure, reply.over.is_set()) == (200, b"", "", False)
