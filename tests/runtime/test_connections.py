"""The bounds of the connections to every HTTP port: what is late, large, unread or too much, and what makes room."""

import ast
import asyncio
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from hmas.runtime.connections import FOR_OPERATORS, ConnectionBounds, guarded
from hmas.runtime.ops import HttpServer, ops_server
from tests.conftest import PATIENCE_S, eventually
from tests.house.repository import trees

WHOLE = b"GET /health HTTP/1.1\r\nhost: h\r\n\r\n"
HALF = b"GET /health HTTP/1.1\r\nhost: h\r\n"
HEADED = b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n"
Ways = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


class Port:
    """A server, and connections to it."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server, self.port = server, port
        self._held: Ways = []

    @property
    def open(self) -> int:
        return len(self.server._server.server_state.connections)

    async def hold(self, count: int, sent: bytes = HALF) -> Ways:
        ways = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(count)]
        for _, writer in ways:
            writer.write(sent)
        self._held += ways
        return ways

    def let_go(self) -> None:
        for _, writer in self._held:
            writer.close()

    async def ask(self, *parts: bytes) -> bytes:
        """Sends the parts and returns all that comes until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_S):
            got = await reader.read()
        writer.close()
        return got


@asynccontextmanager
async def serving(server: HttpServer) -> AsyncIterator[Port]:
    port = Port(server, await server.start())
    try:
        yield port
    finally:
        port.let_go()
        await server.stop()


async def reads(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads a request before it answers with its body, but on /early, and never on /silent."""
    if scope["type"] != "http":
        return
    body, more = b"", scope["path"] not in ("/early", "/long")
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    if scope["path"] == "/silent":
        await asyncio.sleep(PATIENCE_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(1_000 if scope["path"] == "/long" else 0):
        await send({"type": "http.response.body", "body": bytes(2**16), "more_body": True})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def bounded(**bounds: Any) -> HttpServer:
    defaults = {"max_connections": 8, "head_timeout_s": 60.0, "with_body": True}
    config = uvicorn.Config(
        reads, port=0, http=guarded(ConnectionBounds(**{**defaults, **bounds})), log_config=None,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    return HttpServer(config)


async def test_an_ops_port_holds_no_more_than_its_bound_and_answers_beside_half_heads() -> None:
    most = FOR_OPERATORS.max_connections
    async with serving(ops_server("127.0.0.1", 0, lambda: True, token="secret")) as port:
        held = await port.hold(most + 100)
        await eventually(lambda: port.open <= most)
        for _ in range(20):
            assert (await port.ask(WHOLE.replace(b"host", b"connection: close\r\nhost"))).startswith(b"HTTP/1.1 200 ")
        assert await held[0][0].read() == b""  # the oldest went first


@pytest.mark.parametrize("parts", [[b""], [HALF], [HEADED], [HEADED, b"a"]])
async def test_what_is_not_whole_in_time_is_refused(parts: list[bytes]) -> None:
    async with serving(bounded(head_timeout_s=0.2)) as port:
        got = await port.ask(*parts)
        assert got.startswith(b"HTTP/1.1 408 ")
        assert got.count(b"HTTP/1.1") == 1


async def test_a_body_that_never_comes_after_its_answer_ends_the_connection() -> None:
    async with serving(bounded(head_timeout_s=0.2)) as port:
        got = await port.ask(b"POST /early HTTP/1.1\r\ncontent-length: 9\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 ")
        assert got.count(b"HTTP/1.1") == 1


async def test_a_head_that_is_too_large_is_refused() -> None:
    async with serving(bounded(max_head_bytes=2_000)) as port:
        assert (await port.ask(HALF + b"x: " + b"y" * 3_000)).startswith(b"HTTP/1.1 431 ")


async def test_a_whole_request_is_answered_with_its_body() -> None:
    async with serving(bounded(head_timeout_s=0.2)) as port:
        parts = [b"POST / HTTP/1.1\r\nconnection: close\r\n", b"content-length: 9\r\n\r\n1234", b"56789"]
        assert (await port.ask(*parts)).endswith(b"123456789\r\n0\r\n\r\n")


@pytest.mark.parametrize("sent", [b"", HALF, HEADED, WHOLE, b"nonsense\r\n\r\n"])
async def test_who_asks_nothing_locks_nobody_out(sent: bytes) -> None:
    """Half heads, bodies that do not come, idle connections and refused ones make room for a request."""
    async with serving(bounded()) as port:
        await port.hold(20, sent)
        for _ in range(5):
            assert (await port.ask(WHOLE.replace(b"host", b"connection: close\r\nhost"))).startswith(b"HTTP/1.1 200 ")
        await eventually(lambda: port.open <= 8)


async def test_no_request_makes_room_for_another_and_half_heads_go_before_idle_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hmas.runtime.connections.GRACE_S", 0.0)
    async with serving(bounded(max_connections=4)) as port:
        (idle,) = await port.hold(1, WHOLE)
        await idle[0].readuntil(b"0\r\n\r\n")
        halves = await port.hold(2)
        await port.hold(1, b"GET /silent HTTP/1.1\r\n\r\n")
        await eventually(lambda: port.open == 4)
        await port.hold(2, b"GET /silent HTTP/1.1\r\n\r\n")
        for reader, _ in halves:
            assert await reader.read() == b""
        idle[1].write(WHOLE)
        assert (await idle[0].readuntil(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await port.hold(1, b"GET /silent HTTP/1.1\r\n\r\n")
        assert await idle[0].read() == b""
        got = await port.ask(WHOLE)
        assert got.startswith(b"HTTP/1.1 503 ")
        assert b"4 connections already" in got


async def test_any_number_of_requests_that_offer_another_protocol_are_answered() -> None:
    offer = b"POST / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 1\r\n\r\n."
    last = b"POST / HTTP/1.1\r\nconnection: close\r\ncontent-length: 4\r\n\r\nlast"
    async with serving(bounded(max_head_bytes=2**10)) as port:
        got = await port.ask(2_000 * offer + last)
    assert got.count(b"HTTP/1.1 200 OK") == 2_001
    assert got.endswith(b"last\r\n0\r\n\r\n")


async def test_an_answer_is_not_ended_for_a_part_of_the_request_after_it() -> None:
    async with serving(bounded(max_connections=2)) as port:
        held = await port.hold(2, b"GET /silent HTTP/1.1\r\n\r\n" + HALF)
        await eventually(lambda: len(port.server._server.server_state.tasks) == 2)  # both are being answered
        assert (await port.ask(WHOLE)).startswith(b"HTTP/1.1 503 ")
        assert not any(reader.at_eof() for reader, _ in held)


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    async with serving(bounded(unread_s=0.2)) as port:
        await port.hold(1, b"GET /long HTTP/1.1\r\n\r\n")
        await eventually(lambda: port.open == 1)
        await eventually(lambda: port.open == 0)


def test_every_http_server_of_the_product_has_bounds() -> None:
    configs = [
        (path, {word.arg: word.value for word in node.keywords})
        for path, tree in trees() if path.startswith("services/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "uvicorn.Config"
    ]  # fmt: skip
    assert len(configs) >= 4
    for path, words in configs:
        assert ast.unparse(words.get("http", ast.Constant(None))).startswith("guarded("), path


LIMITS = "from hmas.runtime.open_files import *; {}print(open_files())"


def limited(soft: int, hard: int, code: str) -> str:
    """What code prints in a process with these limits of open files."""
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )  # fmt: skip
    return done.stdout.strip()


def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    assert limited(256, 700, LIMITS.format("")) == "256"
    assert limited(256, 700, LIMITS.format("raise_open_files(); ")) == "700"
    assert limited(700, 700, LIMITS.format("raise_open_files(); ")) == "700"


def test_connections_leave_most_of_few_open_files_to_others() -> None:
    code = "from hmas.runtime.connections import *; print(guarded(ConnectionBounds({})).bounds.max_connections)"
    assert limited(1024, 1024, code.format(8192)).splitlines()[-1] == "256"
    assert limited(1024, 1024, code.format(100)) == "100"
