"""The HTTP server for /metrics, /health and /ready of every service; the gateway's has a few pages more."""

import asyncio
import hmac
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, disable_created_metrics, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hmas.contracts.registry import WIRE_VERSION
from hmas.installation import package_version
from hmas.runtime.connections import FOR_OPERATORS, guarded
from hmas.runtime.tls_handshakes import TlsHandshakes

OPEN_PATHS = ("/health", "/ready")  # what orchestrators ask for


class TokenGuard:
    """Asks for a token wherever an application tells more than whether it lives, because metrics name tenants."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or hmac.compare_digest(given, self._wanted):
            await self._app(scope, receive, send)
            return
        advice = "this page needs the token in the file HMAS_OPS_TOKEN_FILE: Authorization: Bearer TOKEN\n"
        await PlainTextResponse(advice, 401, {"www-authenticate": "Bearer"})(scope, receive, send)


disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which no panel and no alert asks for
TASKS = Gauge("hmas_asyncio_tasks", "Tasks of the event loop that have not ended")
BUILD = Gauge("hmas_build_info", "Always 1; the version of the package and that of its messages", ["version", "wire"])
BUILD.labels(package_version(), str(WIRE_VERSION)).set(1)


def metrics_page() -> bytes:
    """Returns this process's metrics in the Prometheus format."""
    TASKS.set(len(asyncio.all_tasks()))
    return generate_latest()


def ops_app(ready: Callable[[], bool], more: Sequence[BaseRoute] = ()) -> Starlette:
    """Returns the application for operators: `/health` answers 200 while the event loop runs, `/ready` 200 or 503 as
    `ready` returns, and `/metrics` in the Prometheus format. `more`: routes that only one service has."""

    async def metrics(_: Request) -> Response:
        return Response(metrics_page(), media_type=CONTENT_TYPE_LATEST)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readiness(_: Request) -> Response:
        return PlainTextResponse("ready") if ready() else PlainTextResponse("not ready", 503)

    return Starlette(routes=[Route("/metrics", metrics), Route("/health", health), Route("/ready", readiness), *more])


class HttpServer:
    """A uvicorn server without uvicorn's signal handlers, because the service itself handles signals and drains."""

    def __init__(self, config: uvicorn.Config) -> None:
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Begins to serve in the background and returns the port. Raises OSError if the port is taken."""
        config = self._server.config
        config.load()
        if config.ssl is not None:  # the protocols themselves do the handshake, within bounds
            protocol: Any = config.http_protocol_class
            most, limit_s = protocol.bounds.max_connections, protocol.bounds.head_timeout_s
            made: Any = TlsHandshakes(protocol, config.ssl, most=most, limit_s=limit_s)
            config.http_protocol_class, config.ssl = made, None
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


def ops_server(
    host: str, port: int, ready: Callable[[], bool], more: Sequence[BaseRoute] = (), *, token: str = ""
) -> HttpServer:
    """Returns the server of `ops_app`; with a `token`, its pages ask for it."""
    pages = ops_app(ready, more)
    app: ASGIApp = TokenGuard(pages, token) if token else pages
    return HttpServer(
        uvicorn.Config(
            app, host=host, port=port, http=guarded(FOR_OPERATORS), ws="none", log_config=None,
            access_log=False, timeout_graceful_shutdown=1,
        )
    )  # fmt: skip
