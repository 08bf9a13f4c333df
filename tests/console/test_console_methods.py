"""Each method on each path of the console gets its own answer, over each kind of connection, and so does the next
request of that connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from hmas.console.settings import ConsoleSettings
from hmas.runtime.connections import FOR_OPERATORS, guarded
from hmas.runtime.ops import HttpServer
from tests.console.test_console_server import PAGES, Desk
from tests.every_method import KEPT, METHODS, OLD, PIPELINED, WAYS, EveryMethod

STREAM = "/api/stream?page=now"
READ = (*PAGES, "/health", "/api/about", "/api/requests/known", "/api/requests/other", "/api/stream?page=none")
ACTS = ("/api/login", "/api/pin", "/api/plan", "/api/whatif")
OTHER = ("/nowhere", "/api", "/docs")


@asynccontextmanager
async def console() -> AsyncIterator[EveryMethod]:
    app = Desk(ConsoleSettings()).app
    server = HttpServer(
        uvicorn.Config(
            app, host="127.0.0.1", port=0, http=guarded(FOR_OPERATORS), ws="none", lifespan="off", log_config=None,
            access_log=False, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
    port = await server.start()
    try:
        yield EveryMethod(port, "/api/about", b'{"version"')
    finally:
        await server.stop()


@pytest.mark.parametrize("way", WAYS)
async def test_each_method_on_each_path_gets_its_own_answer(way: str) -> None:
    async with console() as client:
        for path in (*READ, STREAM, "/static/style.css", *ACTS, *OTHER):
            methods = [method for method in METHODS if (method, path) != ("GET", STREAM)]  # which never ends
            answers = await asyncio.gather(*(client.ask(method, path, way) for method in methods))
            for method, answer in zip(methods, answers, strict=True):
                assert answer.status < 500, (method, path, answer)
                if method in ("GET", "HEAD") and path in READ:
                    assert answer.status in (200, 404), (method, path, answer)


@pytest.mark.parametrize("way", [KEPT, PIPELINED, OLD])
async def test_head_is_answered_as_get_is_without_the_body(way: str) -> None:
    async with console() as client:
        for path in (*READ, *OTHER):
            head, get = await client.ask("HEAD", path, way), await client.ask("GET", path, way)
            assert head.status == get.status, path
            assert head.headers[b"content-length"] == b"%d" % len(get.body), path
        stream = await client.ask("HEAD", STREAM, way)
        assert (stream.status, stream.headers[b"content-type"][:17]) == (200, b"text/event-stream")
