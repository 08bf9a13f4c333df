"""The console's HTTP application: pages, their streams, a request's timeline, pins, and what-ifs."""

from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, Field
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from hmas.console.guard import ConsoleGuard, bearer, cookie_of, same
from hmas.console.pages import PAGES
from hmas.console.pages.requests import view_request
from hmas.console.plan_orders import PlanOrder
from hmas.console.question import WhatIfQuestion
from hmas.console.settings import ConsoleSettings
from hmas.console.stream import BrowserStreams
from hmas.contracts.control import TopologyName
from hmas.entry_points import known_topology
from hmas.runtime.head_requests import HeadAsGet
from hmas.runtime.settings import MAX_TOKEN_CHARS

STATIC = Path(__file__).parent / "static"
MAX_ID = 300  # characters of a request's id
MAX_FAULTS = 500  # characters of what is said about a faulty order

Ask = Callable[[str], Awaitable[dict[str, Any] | None]]
Act = Callable[[str, TopologyName | None], Awaitable[None]]


class PinCommand(BaseModel):
    """What a browser asks for: a pool's topology, or none to lift its pin."""

    pool: str = Field(min_length=1, max_length=MAX_ID)
    topology: Annotated[TopologyName, AfterValidator(known_topology)] | None


class Login(BaseModel):
    """The readers' token, given once."""

    token: str = Field(max_length=MAX_TOKEN_CHARS)


async def _faulty(_: Request, error: Exception) -> Response:
    """Says in words what is wrong with an order. FastAPI's own answer repeats the order, and cannot write all that may
    be in one, such as NaN or half a surrogate pair."""
    faults = error.errors() if isinstance(error, RequestValidationError) else ()
    message = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
    detail = message[:MAX_FAULTS].encode("ascii", "backslashreplace").decode()
    return JSONResponse({"detail": detail}, 422)


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


def _add_acts(
    app: FastAPI,
    admin: str,
    pools: Callable[[], frozenset[str]],
    pin: Act,
    plan: Callable[[PlanOrder], Awaitable[None]],
    whatif: Callable[[WhatIfQuestion], None],
) -> None:
    """Adds the paths by which an operator acts on a pool, or on the plan of all; they take the admin's token."""

    def authorise(request: Request, what: str, pool: str | None = None) -> None:
        """Refuses senders who may not act, and unknown pools."""
        if not admin:
            raise HTTPException(403, "nobody may act here: HMAS_CONSOLE_ADMIN_TOKEN_FILE is not set")
        if not same(bearer(dict(request.scope["headers"])), admin):
            raise HTTPException(401, f"{what} takes the admin's token: Authorization: Bearer TOKEN")
        if pool is not None and pool not in pools():
            raise HTTPException(404, "there is no such pool")

    @app.post("/api/pin")
    async def order_pin(order: PinCommand, request: Request) -> Response:
        authorise(request, "pinning", order.pool)
        await pin(order.pool, order.topology)
        return Response(status_code=204)

    @app.post("/api/plan")
    async def order_plan(order: PlanOrder, request: Request) -> Response:
        authorise(request, "acting on the plan")
        await plan(order)
        return Response(status_code=204)

    @app.post("/api/whatif")
    async def ask_whatif(question: WhatIfQuestion, request: Request) -> Response:
        authorise(request, "a what-if", question.pool)
        whatif(question)
        return Response(status_code=202)


def console_app(
    settings: ConsoleSettings,
    streams: BrowserStreams,
    *,
    pools: Callable[[], frozenset[str]],
    why: Ask,
    pin: Act,
    plan: Callable[[PlanOrder], Awaitable[None]],
    whatif: Callable[[WhatIfQuestion], None],
) -> ASGIApp:
    """Returns the console's application. `pools`: those that can be pinned; `why` asks for a request's timeline; `pin`
    pins a pool; `plan` carries out an order about the plan; `whatif` begins to answer a question. Raises CannotStart or
    OSError for tokens that cannot be used."""
    token, admin = settings.reading_token(), settings.admin_token()
    # FastAPI's own pages would load scripts from another host.
    stream = Route("/api/stream", _StreamRoute(streams), methods=["GET"])
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, routes=[stream])
    app.add_middleware(HeadAsGet)
    app.add_exception_handler(RequestValidationError, _faulty)

    @app.get("/health")
    async def health() -> Response:
        return PlainTextResponse("ok")

    @app.get("/api/about")
    async def about() -> Response:
        return JSONResponse({"version": version("hmas"), "can_act": bool(admin), "needs_token": bool(token)})

    @app.post("/api/login")
    async def login(order: Login) -> Response:
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

    _add_acts(app, admin, pools, pin, plan, whatif)

    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    for path in ("/", *(f"/{name}" for name in PAGES), "/r/{request_id:path}"):
        app.get(path)(page)
    app.mount("/static", StaticFiles(directory=STATIC))
    return ConsoleGuard(app, token=token, names=settings.names())
