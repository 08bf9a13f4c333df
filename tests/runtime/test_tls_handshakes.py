"""TLS handshakes of an HTTP port: how many go on at once and how long each may take, and that requests come through."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
import uvloop
from prometheus_client import REGISTRY

from hmas.runtime.connections import ConnectionBounds, guarded
from hmas.runtime.ops import HttpServer, ops_app
from tests.certificates import issuer
from tests.conftest import PATIENCE_S, eventually

WHOLE = b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
Run = Callable[[Coroutine[Any, Any, None]], None]
Ways = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs on either event loop: services use the second one, tests the first."""
    found: Run = request.param
    return found


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    files = issuer(tmp_path).issue("gateway")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    return context


@asynccontextmanager
async def serving(context: ssl.SSLContext, **bounds: float) -> AsyncIterator[int]:
    config = uvicorn.Config(
        ops_app(lambda: True), port=0, http=guarded(ConnectionBounds(**bounds)), ws="none", log_config=None,  # type: ignore[arg-type]
        ssl_context_factory=lambda *_: context, timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = HttpServer(config)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()


def stranger() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def asked(port: int, sent: bytes = LAST) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=stranger())
        writer.write(sent)
        got = await reader.read()
    writer.close()
    return got


async def held(port: int, count: int) -> Ways:
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def until_ended(way: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            assert await way[0].read() == b""


def given_up(reason: str) -> float:
    found = REGISTRY.get_sample_value("hmas_tls_handshakes_unfinished_total", {"reason": reason})
    return found or 0.0


def test_requests_come_through_also_at_once_and_over_one_connection(run: Run, context: ssl.SSLContext) -> None:
    async def tried() -> None:
        async with serving(context) as port:
            for answer in await asyncio.gather(*(asked(port, 3 * WHOLE + LAST) for _ in range(20))):
                assert answer.count(b"HTTP/1.1 200 OK") == 4

    run(tried())


def test_the_oldest_of_too_many_handshakes_makes_room(run: Run, context: ssl.SSLContext) -> None:
    async def tried() -> None:
        before = given_up("displaced")
        async with serving(context, max_connections=3) as port:
            ways = await held(port, 5)
            await eventually(lambda: given_up("displaced") == before + 2)
            assert b"200 OK" in await asked(port)
            await eventually(lambda: given_up("displaced") == before + 3)
            for way in ways[:3]:
                await until_ended(way)
            assert not any(reader.at_eof() for reader, _ in ways[3:])
            for _, writer in ways:
                writer.close()

    run(tried())


def test_a_handshake_takes_no_longer_than_a_head(run: Run, context: ssl.SSLContext) -> None:
    async def tried() -> None:
        before = given_up("time")
        async with serving(context, head_timeout_s=0.1) as port:
            (way,) = await held(port, 1)
            async with asyncio.timeout(PATIENCE_S):
                assert await way[0].read() == b""
            await eventually(lambda: given_up("time") == before + 1)
            way[1].close()

    run(tried())


def test_what_is_no_tls_is_ended_and_so_is_a_client_that_leaves(run: Run, context: ssl.SSLContext) -> None:
    async def tried() -> None:
        before = given_up("client")
        async with serving(context) as port:
            plain, leaver = await held(port, 2)
            plain[1].write(WHOLE)
            leaver[1].close()
            async with asyncio.timeout(PATIENCE_S):
                assert b"HTTP" not in await plain[0].read()
            await eventually(lambda: given_up("client") == before + 2)
            assert b"200 OK" in await asked(port)
            plain[1].close()

    run(tried())
