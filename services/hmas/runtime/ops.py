"""/metrics, /health and /ready of every service but the gateway, which has them on its own port."""

import asyncio
from collections.abc import Callable

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def ops_app(ready: Callable[[], bool]) -> Starlette:
    """`/health` says the process turns its event loop; `/ready` that it can do its work."""

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readiness(_: Request) -> Response:
        return PlainTextResponse("ready") if ready() else PlainTextResponse("not ready", 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health), Route("/ready", readiness)])


class HttpServer:
    """uvicorn without its own signal handling, so that the service's drain is the only one."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Serves in the background; the bound port. Raises OSError where it is taken."""
        config = self._server.config
        sock = config.bind_socket()
        # uvicorn's `serve` captures signals; `_serve` is the same without.
        self._task = asyncio.create_task(self._server._serve(sockets=[sock]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise OSError(f"no server on {config.host}:{config.port}")
            await asyncio.sleep(0.005)
        return int(sock.getsockname()[1])

    def retire(self) -> None:
        """Idle connections close, the others with their answer, so that clients that keep them go elsewhere."""
        for connection in list(self._server.server_state.connections):
            connection.shutdown()

    async def stop(self) -> None:
        """Lets open responses end, as long as uvicorn's `timeout_graceful_shutdown` says."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task


def ops_server(host: str, port: int, ready: Callable[[], bool]) -> HttpServer:
    return HttpServer(
        uvicorn.Config(
            ops_app(ready), host=host, port=port, log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
    )
