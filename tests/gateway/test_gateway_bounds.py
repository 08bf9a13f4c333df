"""Clients that never read, never end, send too much or are too many."""

import asyncio
import threading
from typing import Any

import pytest

from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent import GatewayConfig
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.http.bodies import LARGE_BYTES, BodyBounds, BodyDesk
from hmas.gateway.http.server import HttpServerConfig
from hmas.runtime.connections import ConnectionBounds
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_harness import (
    CHAT,
    HEAD,
    PATH,
    PLAIN,
    asking,
    body,
    client,
    error_of,
    event,
    gateway,
    silence,
)
from tests.worker.adapters.scripted_engine import Peer

BIG = event(0).replace(b'"0"', b'"%b"' % (b"x" * 65_536))


async def flood(peer: Peer) -> None:
    """An engine that does not stop; its connection pushes back."""
    await peer.begin_chunks()
    while True:
        await peer.chunk(BIG)


async def test_a_client_that_never_reads_is_given_up() -> None:
    async with gateway(behave=flood, max_buffered_bytes=2**20) as g:
        reader, writer = await asking(g)
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.CANCELLED]
        assert g.shell.live == 0
        writer.close()
        del reader


async def test_a_client_that_leaves_a_full_connection_unread_is_given_up() -> None:
    async def some(peer: Peer) -> None:
        await peer.begin_chunks()
        for _ in range(100):
            await peer.chunk(BIG)
        await peer.gone()

    async with gateway(behave=some, server=HttpServerConfig(stall_s=0.1)) as g:
        reader, writer = await asking(g)
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert g.shell.live == 0
        writer.close()
        del reader


async def test_an_answer_that_is_too_large_to_hold() -> None:
    async def behave(peer: Peer) -> None:
        await peer.reply(b"x" * 2**20 + b"x")

    async with gateway(behave=behave, max_buffered_bytes=2**20) as g, client(g) as c:
        response = await c.post(PATH, json=CHAT)
        assert response.status_code == 502
        assert "larger than 1048576 bytes" in error_of(response)["message"]
        (ended,) = g.workers.of(Ended)
        assert not ended.retryable


async def test_bodies_of_waiting_requests_are_bounded() -> None:
    async with gateway(grants=False, agent=GatewayConfig(gateway="g", max_held_bytes=500)) as g, client(g) as c:
        big = asyncio.create_task(c.post(PATH, json={**CHAT, "user": "u" * 300}))
        await g.until(lambda: bool(g.workers.submits))
        response = await c.post(PATH, json={**CHAT, "user": "u" * 300})
        assert (response.status_code, error_of(response)["reason"]) == (429, "pool_queue_full")
        assert int(response.headers["retry-after"]) >= 1
        await g.until(lambda: sum(len(telemetry.offered) for telemetry in g.published) == 2)
        g.workers.grant(*g.workers.submits[0])
        assert (await big).content == PLAIN
        g.workers.grants = True
        assert (await c.post(PATH, json={**CHAT, "user": "u" * 300})).content == PLAIN


async def raw(port: int, *parts: bytes) -> bytes:
    """Sends parts and reads until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)
    async with asyncio.timeout(PATIENCE_S):
        got = await reader.read()
    writer.close()
    return got


@pytest.mark.parametrize("start", [b"", b"POST /v1/ch", HEAD + b"x-a: b\r\n"])
async def test_a_head_that_never_ends(start: bytes) -> None:
    async with gateway(connections=ConnectionBounds(head_timeout_s=0.1)) as g:
        got = await raw(g.port, start)
        assert got.startswith(b"HTTP/1.1 408 ")
        assert b'"reason":"client_too_slow"' in got


async def test_a_head_that_is_too_large() -> None:
    async with gateway(connections=ConnectionBounds(max_head_bytes=1000)) as g:
        got = await raw(g.port, HEAD, b"x-a: " + b"b" * 2000)
        assert got.startswith(b"HTTP/1.1 431 ")


WHOLE = b"GET /v1/models HTTP/1.1\r\nhost: h\r\n\r\n"


async def test_a_later_head_on_the_same_connection_is_bounded_too() -> None:
    async with gateway(connections=ConnectionBounds(head_timeout_s=0.1, max_head_bytes=1000)) as g:
        stalled = await raw(g.port, WHOLE, WHOLE, HEAD)
        assert stalled.count(b"HTTP/1.1 200 ") == 2
        assert b"HTTP/1.1 408 " in stalled
        grown = await raw(g.port, WHOLE, HEAD, b"x-a: " + b"b" * 600, b"b" * 600)
        assert grown.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 431 " in grown


async def test_what_is_not_http() -> None:
    async with gateway() as g:
        got = await raw(g.port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 400 ")
        assert b'"error":{' in got


async def test_a_body_that_never_ends() -> None:
    config = HttpServerConfig(body=BodyBounds(timeout_s=0.1))
    async with gateway(server=config) as g:
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(HEAD + b'content-length: 100\r\n\r\n{"model"')
        got = await reader.readuntil(b'"reason":"client_too_slow"}}')
        assert got.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in got
        writer.close()


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read() -> None:
    async with gateway() as g:
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(HEAD + b"content-length: 50000000\r\nexpect: 100-continue\r\n\r\n")
        got = await reader.readuntil(b'"reason":"body_too_large"}}')
        assert got.startswith(b"HTTP/1.1 413 ")
        writer.close()


async def test_a_client_that_sends_50_mb_and_then_reads_sees_the_413() -> None:
    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, content=b"x" * 50_000_000)
        assert response.status_code == 413


async def test_a_chunked_body_is_bounded_while_it_is_read() -> None:
    async def chunks() -> Any:
        for _ in range(100):
            yield b"x" * 10_000

    async with gateway() as g, client(g) as c:
        response = await c.post(PATH, content=chunks())
        assert (response.status_code, error_of(response)["reason"]) == (413, "body_too_large")


async def test_full_connections_make_room() -> None:
    async with gateway(connections=ConnectionBounds(max_connections=2), behave=silence) as g:
        held = [await asyncio.open_connection("127.0.0.1", g.port) for _ in range(2)]
        asked, data = [], body()
        for half, _ in held:
            asked.append(await asyncio.open_connection("127.0.0.1", g.port))
            asked[-1][1].write(HEAD + b"content-length: %d\r\n\r\n" % len(data) + data)
            await g.until(lambda: g.shell.live == len(asked))
            assert await half.read() == b""
        got = await raw(g.port)
        assert got.startswith(b"HTTP/1.1 503 ")
        assert b"HMAS_MAX_CONNECTIONS" in got
        asked[0][1].close()
        await g.until(lambda: g.shell.live == 1)
        assert (await raw(g.port, b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        asked[1][1].close()


async def test_one_that_has_just_come_stays_while_there_are_idle_ones() -> None:
    async with gateway(connections=ConnectionBounds(max_connections=2)) as g:
        idle = await asyncio.open_connection("127.0.0.1", g.port)
        idle[1].write(b"GET /version HTTP/1.1\r\nhost: h\r\n\r\n")
        assert (await idle[0].readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        young = await asyncio.open_connection("127.0.0.1", g.port)
        assert (await raw(g.port, b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert await idle[0].read() == b""
        young[1].write(b"GET /version HTTP/1.1\r\nhost: h\r\n\r\n")
        assert (await young[0].readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        young[1].close()


async def test_bodies_that_have_come_in_part_are_bounded() -> None:
    config = HttpServerConfig(body=BodyBounds(max_bytes=100_000, max_reading_bytes=1_000))
    async with gateway(server=config) as g, client(g) as c:
        half = HEAD + b"content-length: 2000\r\n\r\n" + b" " * 900
        held = await asyncio.open_connection("127.0.0.1", g.port)
        held[1].write(half)
        await g.until(lambda: g.app._desk.reading > 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(half)
        got = await reader.readuntil(b'"reason":"pool_queue_full"')
        assert got.startswith(b"HTTP/1.1 429 ")
        assert b"HMAS_MAX_READING_BYTES" in got
        assert (await c.post(PATH, json=CHAT)).content == PLAIN  # one that comes whole needs no room
        held[1].transport.abort()
        writer.close()
        await g.until(lambda: g.app._desk.reading == 0)


async def test_large_bodies_are_parsed_one_at_a_time_beside_the_loop() -> None:
    desk, may_end, parsing, most = BodyDesk(BodyBounds()), threading.Event(), list[int](), list[int]()

    def parse() -> None:
        parsing.append(1)
        most.append(len(parsing))
        may_end.wait(PATIENCE_S)
        parsing.pop()

    large = [asyncio.create_task(desk.parsed("t", LARGE_BYTES + 1, parse)) for _ in range(3)]
    while not most:
        await asyncio.sleep(0)
    assert await desk.parsed("t", LARGE_BYTES, lambda: "small") == "small"  # a small one waits for none of them
    may_end.set()
    await asyncio.gather(*large)
    assert most == [1, 1, 1]
    assert desk.reading == 0


async def test_the_large_bodies_of_one_tenant_come_in_turns_with_those_of_others() -> None:
    desk, order = BodyDesk(BodyBounds()), list[str]()
    many = [asyncio.create_task(desk.parsed("many", LARGE_BYTES + 1, lambda: order.append("many"))) for _ in range(9)]
    await asyncio.sleep(0)
    await desk.parsed("few", LARGE_BYTES + 1, lambda: order.append("few"))
    assert order.index("few") <= 2
    await asyncio.gather(*many)
    assert len(order) == 10


async def test_bodies_that_wait_for_their_turn_are_bounded() -> None:
    desk = BodyDesk(BodyBounds(max_reading_bytes=3 * LARGE_BYTES))
    first = asyncio.create_task(desk.parsed("t", 2 * LARGE_BYTES, lambda: None))
    await asyncio.sleep(0)
    with pytest.raises(InvalidRequest, match="HMAS_MAX_READING_BYTES"):
        await desk.parsed("t", 2 * LARGE_BYTES, lambda: None)
    await first
    await desk.parsed("t", 2 * LARGE_BYTES, lambda: None)
    assert desk.reading == 0
