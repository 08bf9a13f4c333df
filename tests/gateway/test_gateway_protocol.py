"""HTTP as attackers and old clients write it: upgrades, HTTP/1.0, broken chunks, heads and trailers without end."""

import asyncio
from contextlib import suppress
from typing import cast

import orjson
import pytest

from hmas.runtime.connections import ConnectionBounds, GuardedProtocol
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_harness import HEAD, PLAIN, body, event, gateway, last, silence

DATA = body()
LENGTH = b"content-length: %d\r\n" % len(DATA)
STREAM = body(stream=True)


async def talk(port: int, *parts: bytes, pause_s: float = 0.02) -> bytes:
    """Sends the parts one by one and returns all that comes until an answer has ended or the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got = b""
    for part in parts:
        writer.write(part)
        await asyncio.sleep(pause_s)
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while data := await reader.read(2**16):
                got += data
                if got.endswith(PLAIN) or got.endswith(b"0\r\n\r\n"):
                    break
    writer.close()
    return got


UPGRADES = [
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
    b"upgrade: websocket\r\nconnection: keep-alive, upgrade\r\n",
    b"upgrade: h2c\r\nconnection: upgrade\r\nconnection: x-hop\r\n",
]


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("cut", [0, 1, 40, None])
async def test_an_upgrade_is_not_taken_and_the_body_belongs_to_its_request(upgrade: bytes, cut: int | None) -> None:
    """What `curl --http2` and Java's HttpClient send. The body may come with the head or in later segments."""
    head = HEAD + upgrade + LENGTH + b"\r\n"
    parts = [head + DATA] if cut is None else [head + DATA[:cut], DATA[cut:]]
    async with gateway() as g:
        got = await talk(g.port, *parts)
        assert got.startswith(b"HTTP/1.1 200 ")
        assert got.endswith(PLAIN)
        assert got.count(b"HTTP/1.1") == 1
        (asked,) = g.engine.requests
        assert orjson.loads(asked.body) == orjson.loads(DATA)


async def test_no_request_can_be_hidden_in_the_body_of_an_upgrade() -> None:
    hidden = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    head = HEAD + UPGRADES[0] + b"content-length: %d\r\n\r\n" % len(hidden)
    async with gateway() as g:
        got = await talk(g.port, head, hidden)
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.count(b"HTTP/1.1") == 1
        assert b"wire_version" not in got


async def test_requests_before_and_after_an_upgrade_on_one_connection() -> None:
    whole = HEAD + LENGTH + b"\r\n" + DATA
    upgraded = HEAD + UPGRADES[0] + LENGTH + b"\r\n" + DATA
    async with gateway() as g:
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(whole + upgraded + whole)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(3):
                assert (await reader.readuntil(PLAIN)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        assert len(g.engine.requests) == 3


async def test_an_upgrade_with_a_chunked_body() -> None:
    head = HEAD + UPGRADES[0] + b"transfer-encoding: chunked\r\n\r\n"
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(DATA), DATA)
    async with gateway() as g:
        got = await talk(g.port, head + chunked[:10], chunked[10:])
        assert got.startswith(b"HTTP/1.1 200 ")
        assert got.endswith(PLAIN)


async def test_connect_is_refused_and_opens_no_tunnel() -> None:
    async with gateway() as g:
        got = await talk(
            g.port, b"CONNECT engine:80 HTTP/1.1\r\nhost: engine:80\r\n\r\n", b"GET /version HTTP/1.1\r\n\r\n"
        )
        assert got.startswith(b"HTTP/1.1 405 ")
        assert b"\r\nallow: \r\n" in got  # there is no method for a tunnel's target
        assert got.count(b"HTTP/1.1") == 1


async def test_an_old_client_gets_a_stream_without_chunks() -> None:
    head = HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"content-length: %d\r\n\r\n" % len(STREAM)
    async with gateway() as g:
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(head + STREAM)
        async with asyncio.timeout(PATIENCE_S):
            got = await reader.read()
        writer.close()
    answer_head, _, text = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in answer_head.lower()
    assert b"connection: close" in answer_head.lower()
    assert text == event(0) + event(1) + last(2) + b"data: [DONE]\n\n"


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/chat/completions"])
async def test_an_old_client_gets_other_answers_as_ever(path: bytes) -> None:
    async with gateway() as g:
        reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write(b"GET " + path + b" HTTP/1.0\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            got = await reader.read()
        writer.close()
    answer_head, _, text = got.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(text) in answer_head
    orjson.loads(text)


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("bad", [b"zz\r\n", b"-5\r\n", b"fffffffffffffffff\r\n", b"5\r\nhelloXX"])
@pytest.mark.parametrize("together", [False, True])
async def test_bad_chunks_are_answered(bad: bytes, together: bool) -> None:
    async with gateway() as g:
        got = await talk(g.port, CHUNKED + b'3\r\n{"m\r\n' + bad) if together else await talk(g.port, CHUNKED, bad)
        assert got.startswith(b"HTTP/1.1 400 ")
        assert b'"reason":"invalid_request"' in got
        assert got.count(b"HTTP/1.1") == 1
        assert g.shell.live == 0


async def test_a_head_in_one_read_is_bounded_like_one_in_many() -> None:
    async with gateway(connections=ConnectionBounds(max_head_bytes=64 * 2**10)) as g:
        got = await talk(g.port, HEAD + b"x-a: " + b"b" * 100_000 + b"\r\n" + LENGTH + b"\r\n" + DATA)
        assert got.startswith(b"HTTP/1.1 431 ")
        many = b"".join(b"x-%d: b\r\n" % i for i in range(12_000))
        assert (await talk(g.port, HEAD + many + b"\r\n")).startswith(b"HTTP/1.1 431 ")
        large_body = body(user="u" * 90_000)
        fine = await talk(g.port, HEAD + b"content-length: %d\r\n\r\n" % len(large_body) + large_body)
        assert fine.endswith(PLAIN)


TRAILED = CHUNKED + b"%x\r\n%b\r\n0\r\n" % (len(DATA), DATA)


@pytest.mark.parametrize("line", [b"x-a: " + b"b" * 20 + b"\r\n", b"b" * 25])
async def test_trailers_are_bounded(line: bytes) -> None:
    async with gateway(connections=ConnectionBounds(max_head_bytes=5_000)) as g:
        got = await talk(g.port, TRAILED, *[line * 200] * 3, pause_s=0.005)
        assert got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
        assert g.shell.live == 0


async def test_chunk_extensions_are_bounded() -> None:
    async with gateway(connections=ConnectionBounds(max_head_bytes=5_000)) as g:
        got = await talk(g.port, CHUNKED, *[b"1;" + b"e" * 2_000 + b"\r\n \r\n"] * 6, pause_s=0.005)
        assert got.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))


async def test_a_body_in_the_smallest_chunks_is_taken() -> None:
    async with gateway(connections=ConnectionBounds(max_head_bytes=100)) as g:
        chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in DATA) + b"0\r\n\r\n"
        got = await talk(
            g.port, CHUNKED[:40], CHUNKED[40:], *(chunks[i : i + 50] for i in range(0, len(chunks), 50)), pause_s=0
        )
        assert got.endswith(PLAIN)


async def test_a_trailer_is_no_header() -> None:
    """It comes after the headers were read; nothing in it may count as one."""
    async with gateway() as g:
        got = await talk(g.port, TRAILED + b"x-slo-ttft-ms: nonsense\r\nx-request-id: mine\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        assert b"mine" not in got


async def test_a_client_that_leaves_pipelined_requests_leaves_all_of_them() -> None:
    """The server must not write any answer to a connection that is gone, which an event loop may answer by an error."""
    async with gateway(behave=silence) as g:
        _, writer = await asyncio.open_connection("127.0.0.1", g.port)
        writer.write((HEAD + LENGTH + b"\r\n" + DATA) * 3)
        await g.asked()
        (connection,) = cast(set[GuardedProtocol], g.http._server.server_state.connections)
        cycles = list(connection._cycles)
        assert len(cycles) == 3
        writer.transport.abort()
        await g.until(lambda: g.shell.live == 0)
        assert all(cycle.disconnected for cycle in cycles)
