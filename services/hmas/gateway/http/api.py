"""The routes that do not generate text: on FastAPI those of the API's port (models, decisions, health, version, and the
description of all routes), and those that the gateway's ops port has beside metrics and health.

With a tenants file everything on the API's port but health and version asks for an API key.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WIRE_VERSION
from hmas.gateway.agent.pools.directory import ModelCard, ModelDirectory
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.errors import ApiError, ErrorShape, InvalidRequest
from hmas.gateway.openai.chains import MESSAGES_PATH
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.openapi_page import CONTENT_POLICY, described, docs_page
from hmas.gateway.tenants.store import TenantStore
from hmas.gateway.tenants.terms import Tenant, client_request_id, read_headers
from hmas.installation import package_version
from hmas.runtime import ids
from hmas.runtime.head_requests import HeadAsGet

TITLE = "H-MAS"
DESCRIPTION = "An OpenAI-compatible API in front of vLLM and SGLang that schedules for TTFT and TPOT promises."


def build_api(
    directory: ModelDirectory, tenants: TenantStore, ready: Callable[[], bool], decisions: DecisionLog
) -> FastAPI:
    """Returns the application with all routes but those that generate text. `ready` tells whether the gateway knows at
    least one model and is connected to the mesh."""
    app = FastAPI(
        title=TITLE, description=DESCRIPTION, version=package_version(), docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(HeadAsGet)
    started = int(time.time())

    @app.get("/v1/models", summary="Models and aliases that the mesh serves")
    async def models(request: Request) -> JSONResponse:
        cards = _listed(directory, tenants, request)
        return JSONResponse({"object": "list", "data": [_card(card, started) for card in cards]})

    @app.get("/v1/models/{model:path}", summary="One model or alias")
    async def model(model: str, request: Request) -> JSONResponse:
        for card in _listed(directory, tenants, request):
            if card.id == model:
                return JSONResponse(_card(card, started))
        message = f"the model `{model}` does not exist: GET /v1/models lists those that do"
        raise InvalidRequest(message, "model", Outcome.UNKNOWN_MODEL)

    @app.get("/hmas/timeline", summary="Latest changes of topology and of control tuples, of one model or of all")
    async def timeline(request: Request, model: str | None = None) -> JSONResponse:
        tenant = tenants.authenticate(read_headers(request.scope["headers"])).tenant
        pools = frozenset(c.root for c in _visible(directory, tenant) if model is None or c.id == model)
        return JSONResponse(decisions.changes_of(pools))

    @app.get("/health", summary="Whether the process is alive")
    async def health() -> Response:
        return PlainTextResponse("ok")

    @app.get("/ready", summary="Whether the gateway knows a model and is connected to the mesh")
    async def readiness() -> Response:
        return PlainTextResponse("ready") if ready() else PlainTextResponse("not ready", 503)

    @app.get("/openapi.json", include_in_schema=False)
    async def description(request: Request) -> JSONResponse:
        tenants.authenticate(read_headers(request.scope["headers"]))
        return JSONResponse(app.openapi())

    @app.get("/version", summary="Version of the gateway and of its protocol to the workers")
    async def versions() -> JSONResponse:
        return JSONResponse({"version": package_version(), "wire_version": WIRE_VERSION})

    _answer_errors(app, directory, tenants)
    _describe_hot_routes(app)
    return app


def ops_routes(api: FastAPI, directory: ModelDirectory, decisions: DecisionLog) -> list[BaseRoute]:
    """Returns the pages of the ops port, which ask for no key: the decisions for all models, and the API's
    description, also as a page for people that loads nothing from elsewhere."""

    async def timeline(_: Request) -> Response:
        return JSONResponse(decisions.changes_of(frozenset(card.root for card in directory.cards())))

    async def description(_: Request) -> Response:
        return JSONResponse(api.openapi())

    async def docs(_: Request) -> Response:
        return HTMLResponse(docs_page(api.openapi()), headers={"content-security-policy": CONTENT_POLICY})

    return [Route("/hmas/timeline", timeline), Route("/openapi.json", description), Route("/docs", docs)]


def _visible(directory: ModelDirectory, tenant: Tenant) -> list[ModelCard]:
    return [c for c in directory.cards() if tenant.models is None or c.id in tenant.models or c.root in tenant.models]


def _listed(directory: ModelDirectory, tenants: TenantStore, request: Request) -> list[ModelCard]:
    """Returns the models that the sender of a request may use. Raises InvalidRequest (401), and 503 before the first
    worker has told which models there are, because an empty list would say that there are none."""
    tenant = tenants.authenticate(read_headers(request.scope["headers"])).tenant
    if not directory:
        message = "no worker has told its model yet, as the mesh is starting or has no worker: try again in a moment"
        raise InvalidRequest(message, outcome=Outcome.NO_ENGINE)
    return _visible(directory, tenant)


def _served(directory: ModelDirectory, tenant: Tenant) -> str:
    """Returns the paths that a tenant may use, as a text: those that its models' engines serve, as far as known."""
    known = dict.fromkeys(path for card in _visible(directory, tenant) for path in directory.paths(card.id))
    return ", ".join(["GET /v1/models", *(f"POST {path}" for path in known or FORMS)])


def _card(card: ModelCard, created: int) -> dict[str, Any]:
    """Returns an entry of `/v1/models` in the format of vLLM. `created`: Unix seconds."""
    return {
        "id": card.id,
        "object": "model",
        "created": created,
        "owned_by": "hmas",
        "root": card.root,
        "parent": card.parent,
        "max_model_len": card.max_model_len,
        "permission": [],
    }


def _answer_errors(app: FastAPI, directory: ModelDirectory, tenants: TenantStore) -> None:
    @app.exception_handler(InvalidRequest)
    async def invalid(request: Request, error: InvalidRequest) -> Response:
        return _error_response(request, error.error)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        asked = f"{request.method} {request.url.path}"
        if error.status_code != 404:
            refused = ApiError.of(Outcome.INVALID_REQUEST, f"{asked}: {error.detail}")
            allow = (error.headers or {}).get("Allow", "")
            return _error_response(request, replace(refused, status=error.status_code, allow=allow))
        try:
            tenant = tenants.authenticate(read_headers(request.scope["headers"])).tenant
        except InvalidRequest as unknown:
            return _error_response(request, unknown.error)
        message = f"{asked}: no such path; the API has {_served(directory, tenant)}"
        return _error_response(request, ApiError.of(Outcome.UNKNOWN_PATH, message))


def _error_response(request: Request, error: ApiError) -> Response:
    request_id = client_request_id(read_headers(request.scope["headers"])) or ids.request_id()
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    asked_of_anthropic = request.url.path.startswith(MESSAGES_PATH)
    body = error.body(ErrorShape.ANTHROPIC if asked_of_anthropic else ErrorShape.OPENAI)
    return Response(body, error.status, {**headers, "x-request-id": request_id})


def _describe_hot_routes(app: FastAPI) -> None:
    """Adds the scheduled routes to FastAPI's OpenAPI page, although FastAPI does not serve them."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
            app.openapi_schema = described(schema)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
