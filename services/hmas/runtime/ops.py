"""The HTTP server for /metrics, /health and /ready of every service but the gateway, whose API has them on its port."""

import asyncio
from collections.abc import Callable

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def ops_app(ready: Callable[[], bool]) -> Starlette:
    """Returns the application for operators: `/health` answers 200 while the event loop runs, `/ready` 200 or 503 as
    `ready` returns, and `/metrics` in the Prometheus format."""

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readiness(_: Request) -> Response:
        return PlainTextResponse("ready") if ready() else PlainTextResponse("not ready", 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health), Route("/ready", readiness)])


class HttpServer:
    """A uvicorn server without uvicorn's signal handlers, because the service itself handles signals and drains."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Begins to serve in the background and returns the port. Raises OSError if the port is taken."""
        config = self._server.config
        sock = config.bind_socket()
        # uvicorn's `serve` installs signal handlers; `_serve` does the same without them.
        self._task = asyncio.create_task(self._server._serve(sockets=[sock]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise OSError(f"the HTTP server on {config.host}:{config.port} ended while it started")
            await asyncio.sleep(0.005)
        return int(sock.getsockname()[1])

    def retire(self) -> None:
        """Closes idle connections now and the others after their answers, so that clients connect to another
        process."""
        for connection in list(self._server.server_state.connections):
            connection.shutdown()

    async def stop(self) -> None:
        """Stops the server. Open responses may end within uvicorn's `timeout_graceful_shutdown` seconds."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def ops_server(host: str, port: int, ready: Callable[[], bool]) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            ops_app(ready), host=host, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
    )
