"""The console's HTTP application: pages, their streams, a request's timeline, the pin, and what-ifs."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from hmas.console.guard import ConsoleGuard, bearer, cookie_of, same
from hmas.console.pages import PAGES
from hmas.console.pages.requests import view_request
from hmas.console.question import WhatIfQuestion
from hmas.console.settings import ConsoleSettings
from hmas.console.stream import BrowserStreams
from hmas.contracts.control import TopologyName

STATIC = Path(__file__).parent / "static"
MAX_ID = 300  # characters of a request's id

Ask = Callable[[str], Awaitable[dict[str, Any] | None]]
Act = Callable[[str, TopologyName | None], Awaitable[None]]


class PinOrder(BaseModel):
    """What a browser asks for: a pool's topology, or none to lift its pin."""

    pool: str = Field(min_length=1, max_length=MAX_ID)
    topology: TopologyName | None


class LoginOrder(BaseModel):
    """The readers' token, given once."""

    token: str = Field(max_length=MAX_ID)


class _StreamRoute:
    """Hands a stream its socket, which a framework's response would put a queue before."""

    def __init__(self, streams: BrowserStreams) -> None:
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = Request(scope).query_params
        page = query.get("page", "")
        if page not in PAGES:
            await PlainTextResponse(f"pages are {', '.join(PAGES)}\n", 404)(scope, receive, send)
            return
        await self._streams.serve(page, query.get("choice", ""), scope, receive, send)


def console_app(
    settings: ConsoleSettings,
    streams: BrowserStreams,
    *,
    pools: Callable[[], frozenset[str]],
    why: Ask,
    pin: Act,
    whatif: Callable[[WhatIfQuestion], None],
) -> ASGIApp:
    """Returns the console's application. `pools`: those that can be pinned; `why` asks for a request's timeline; `pin`
    pins a pool; `whatif` begins to answer a question. Raises CannotStart or OSError for tokens that cannot be used."""
    token, admin = settings.reading_token(), settings.admin_token()
    # FastAPI's own pages would load scripts from another host.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, routes=[Route("/api/stream", _StreamRoute(streams))])

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse("ok")

    @app.get("/api/about")
    async def about() -> Response:
        return JSONResponse({"version": version("hmas"), "can_act": bool(admin), "needs_token": bool(token)})

    @app.post("/api/login")
    async def login(order: LoginOrder) -> Response:
        if not same(order.token.encode(), token):
            raise HTTPException(401, "this is not the readers' token")
        answer = Response(status_code=204)
        answer.set_cookie(*cookie_of(token), httponly=True, samesite="strict")
        return answer

    @app.get("/api/requests/{request_id:path}")
    async def request(request_id: str) -> Response:
        timeline = await why(request_id) if len(request_id) <= MAX_ID else None
        if timeline is None:
            raise HTTPException(404, "no gateway remembers this request: ask soon after it")
        return JSONResponse(view_request(timeline))

    def authorise(request: Request, what: str, pool: str) -> None:
        """Refuses whoever may not act on a pool, and pools that there are not."""
        if not admin:
            raise HTTPException(403, "nobody may act here: HMAS_CONSOLE_ADMIN_TOKEN_FILE is not set")
        if not same(bearer(dict(request.scope["headers"])), admin):
            raise HTTPException(401, f"{what} takes the admin's token: Authorization: Bearer TOKEN")
        if pool not in pools():
            raise HTTPException(404, "there is no such pool")

    @app.post("/api/pin")
    async def order_pin(order: PinOrder, request: Request) -> Response:
        authorise(request, "pinning", order.pool)
        await pin(order.pool, order.topology)
        return Response(status_code=204)

    @app.post("/api/whatif")
    async def ask_whatif(question: WhatIfQuestion, request: Request) -> Response:
        authorise(request, "a what-if", question.pool)
        whatif(question)
        return Response(status_code=202)

    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    for path in ("/", *(f"/{name}" for name in PAGES), "/r/{request_id:path}"):
        app.get(path)(page)
    app.mount("/static", StaticFiles(directory=STATIC))
    return ConsoleGuard(app, token=token, names=settings.names())
