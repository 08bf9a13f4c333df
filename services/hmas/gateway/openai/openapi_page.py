"""The OpenAPI description of the API, and a page for people. Body fields not listed are passed on to the engine, except
for those that steer it."""

from collections.abc import Iterator
from html import escape
from typing import Any

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.openai.body import MAX_ANSWERS
from hmas.gateway.openai.fields import MAX_MODEL_CHARS
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.steering import STEERING_FIELDS
from hmas.gateway.openai.tiers import TIER_NAMES

_HEADERS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "x-slo-ttft-ms",
        {"type": "number"},
        "SLO for the time to first token, in ms; or `x-llm-d-slo-ttft-ms`. "
        "The tenant may bound SLOs; `x-hmas-slo-clamped` in the answer names those that were changed",
    ),
    ("x-slo-tpot-ms", {"type": "number"}, "SLO for the time per output token, in ms; or `x-llm-d-slo-tpot-ms`"),
    ("x-slo-ttlt-ms", {"type": "number"}, "SLO for the time to last token, in ms; or `x-llm-d-slo-ttlt-ms`"),
    ("x-priority", {"type": "integer"}, "Lower is served earlier; outranks the body's; bounded by the tenant"),
    ("x-hmas-importance", {"type": "number", "minimum": 0.5, "maximum": 1}, "Higher makes default SLOs stricter"),
    ("x-llm-d-inference-fairness-id", {"type": "string", "maxLength": 128}, "Name of a flow of the tenant"),
    (
        "x-hmas-job",
        {"type": "string", "maxLength": 128},
        "The job, such as an agent's run, that the request belongs to; without it the mesh finds it by the prompt. The "
        "session ids of Dynamo, Claude Code, Codex, OpenCode and SMG are read alike",
    ),
    (
        "x-hmas-queue-status",
        {"type": "string", "enum": ["comment", "event"]},
        "While a streamed request waits: its place and expected wait, as an SSE comment or as an event `queue_status`",
    ),
    ("x-slo-on-miss", {"type": "string", "enum": ["refuse", "relegate"]}, "What becomes of it if it would be late"),
    (
        "x-hmas-outcome",
        {"type": "string", "enum": ["comment", "usage"]},
        "`comment`: a stream ends with a comment like `x-hmas-slo`; `usage`: the answer's `usage` has its fields as "
        "`hmas_slo`",
    ),
    ("x-request-id", {"type": "string", "maxLength": 128}, "Returned; `hmas why` finds a request by it"),
)

_COMMON: dict[str, Any] = {
    "model": {"type": "string", "minLength": 1, "maxLength": MAX_MODEL_CHARS,
              "description": "A model, adapter or alias that `/v1/models` lists"},
    "priority": {"type": "integer", "description": "Lower is served earlier; bounded by the tenant"},
    "service_tier": {"type": "string", "enum": list(TIER_NAMES), "description": "`flex` is served when there is room, "
                     "`priority` as early as the tenant may ask for; the answer names it"},
    **{name: {"description": f"Only for tenants that may: {what}"} for name, what in STEERING_FIELDS.items()},
}  # fmt: skip
_GENERATING: dict[str, Any] = {
    **_COMMON,
    "stream": {"type": "boolean", "default": False},
    "temperature": {"type": "number"},
    "top_p": {"type": "number"},
}
_COUNT = {"type": "integer", "minimum": 1}
_CHUNKED: dict[str, Any] = {
    **_GENERATING,
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "max_tokens": _COUNT,
    "max_completion_tokens": _COUNT,
    "n": {**_COUNT, "maximum": MAX_ANSWERS, "description": "Each answer is scheduled as a request of its own"},
}

_TEXT = {"type": "string"}
_EVENT = {"type": "object", "properties": {"event": _TEXT, "data": _TEXT}}  # each of a stream
_PARTS = {"oneOf": [_TEXT, {"type": "array", "items": {"type": "object"}}]}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {"role": {"type": "string", "minLength": 1}, "content": _PARTS},
}
_MESSAGES = {"type": "array", "minItems": 1, "items": _MESSAGE}
_IDS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_TEXTS = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_INPUTS = {"oneOf": [*_TEXTS["oneOf"], _IDS, {"type": "array", "items": _IDS, "minItems": 1}]}


def _object(required: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of an object, which may have further fields; `required` are names with spaces between."""
    return {"type": "object", "required": required.split(), "additionalProperties": True, "properties": properties}


def _answer(field: str, kind: str = "array") -> dict[str, Any]:
    return _object(field, {field: {"type": kind}, "usage": {"type": ["object", "null"]}})


# By path: what it is, its body, and its answer where it is not streamed.
_ROUTES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    CHAT_PATH: (
        "Chat completion", _object("model messages", {**_CHUNKED, "messages": _MESSAGES}), _answer("choices")
    ),
    COMPLETIONS_PATH: (
        "Text completion", _object("model prompt", {**_CHUNKED, "prompt": _INPUTS}), _answer("choices")
    ),
    "/v1/responses": (
        "Response, which is not kept",
        _object("model input", {**_GENERATING, "input": _PARTS, "instructions": _TEXT, "max_output_tokens": _COUNT}),
        _answer("output"),
    ),
    "/v1/messages": (
        "Message in Anthropic's format",
        _object("model messages", {**_GENERATING, "messages": _MESSAGES, "system": _PARTS, "max_tokens": _COUNT}),
        _answer("content"),
    ),
    "/v1/messages/count_tokens": (
        "Number of tokens of a message in Anthropic's format",
        _object("model messages", {**_COMMON, "messages": _MESSAGES, "system": _PARTS}),
        _answer("input_tokens", "integer"),
    ),
    "/v1/embeddings": (
        "Embeddings",
        _object(
            "model input",
            {**_COMMON, "input": _INPUTS, "encoding_format": {"type": "string", "enum": ["float", "base64"]}},
        ),
        _answer("data"),
    ),
    "/v1/rerank": (
        "Documents in the order of their relevance to a query",
        _object(
            "model query documents",
            {**_COMMON, "query": _TEXT, "documents": {"type": "array", "items": _TEXT, "minItems": 1}},
        ),
        {"oneOf": [_answer("results"), {"type": "array"}]},
    ),
    "/v1/score": (
        "Scores of pairs of texts",
        _object("model text_1 text_2", {**_COMMON, "text_1": _TEXTS, "text_2": _TEXTS}),
        {"anyOf": [_answer("data"), _answer("scores")]},
    ),
    "/tokenize": (
        "Tokens of a prompt", _object("model prompt", {**_COMMON, "prompt": _TEXT}), _answer("tokens")
    ),
}  # fmt: skip

_ERROR_FIELDS = {
    "message": {"type": "string"},
    "type": {"type": "string"},
    "param": {"type": ["string", "null"]},
    "code": {"type": ["string", "integer", "null"]},
    "reason": {"type": "string"},
    "retry_after_s": {"type": "integer"},
    "estimated_wait_s": {"type": "number"},
    "predicted_ttft_s": {"type": "number"},
}
_CARD = {
    "id": _TEXT, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": _TEXT, "root": _TEXT,
    "parent": {"type": ["string", "null"]}, "max_model_len": {"type": ["integer", "null"]},
    "permission": {"type": "array"},
}  # fmt: skip

SCHEMAS: dict[str, Any] = {
    "schemas": {
        "Error": _object("error", {"error": _object("message type param code reason", _ERROR_FIELDS)}),
        "Model": _object(" ".join(_CARD), _CARD),
    },
    "securitySchemes": {
        "key": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    },
}
_SECURITY: list[dict[str, Any]] = [{}, {"key": []}, {"header": []}]  # none without a tenants file

_ERRORS = {
    "400": "The request is not valid; `param` names the field or header at fault",
    "401": "The API key is missing or not valid",
    "403": "The tenant may not use this model",
    "404": "The model does not exist, or its engines do not serve this path; the message names what they serve",
    "408": "The client sent the request too slowly",
    "413": "The request body is too large",
    "429": "A limit of the tenant or of the model's queue is reached; retry after `Retry-After` seconds",
    "500": "The gateway failed",
    "502": "The engine or its worker failed",
    "503": "No worker serves the model, or the gateway is shutting down",
    "504": "The answer was not complete in time",
}
_ERROR_BODY = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def _told_errors(*statuses: str) -> dict[str, Any]:
    return {status: {"description": _ERRORS[status], "content": _ERROR_BODY} for status in statuses}


def _route(path: str) -> dict[str, Any]:
    summary, body, answer = _ROUTES[path]
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if not FORMS[path].prefill_only:
        content["text/event-stream"] = {"schema": _EVENT}
    return {
        "post": {
            "summary": summary,
            "security": _SECURITY,
            "parameters": [
                {"name": name, "in": "header", "schema": kind, "description": text} for name, kind, text in _HEADERS
            ],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {
                "200": {
                    "description": "The engine's answer, unchanged; server-sent events if `stream` is true",
                    "content": content,
                },
                **_told_errors(*_ERRORS),
            },
        }
    }


HOT_ROUTES: dict[str, Any] = {path: _route(path) for path in FORMS}

_PLAIN = {"text/plain": {"schema": _TEXT}}
_MODEL = {"$ref": "#/components/schemas/Model"}
_MODELS = _object("object data", {"object": {"const": "list"}, "data": {"type": "array", "items": _MODEL}})
# By path: the content of a good answer and the statuses of others, of the routes that FastAPI serves.
_OTHER_ROUTES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/models": ({"application/json": {"schema": _MODELS}}, _told_errors("401", "503")),
    "/v1/models/{model}": ({"application/json": {"schema": _MODEL}}, _told_errors("401", "404", "503")),
    "/hmas/timeline": ({"application/json": {"schema": {"type": "object"}}}, _told_errors("401")),
    "/health": (_PLAIN, {}),
    "/ready": (_PLAIN, {"503": {"description": "Not ready", "content": _PLAIN}}),
    "/version": ({"application/json": {"schema": {"type": "object"}}}, {}),
}


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns FastAPI's description of its own routes as that of the whole API. What FastAPI assumes of answers and
    errors is replaced by what they are."""
    paths = dict(HOT_ROUTES)
    for path, methods in schema["paths"].items():
        name = path.replace(":path", "")
        content, errors = _OTHER_ROUTES[name]
        for operation in methods.values():
            operation["responses"] = {"200": {"description": operation["summary"], "content": content}, **errors}
            if "401" in errors:
                operation["security"] = _SECURITY
        paths[name] = methods
    return {**schema, "paths": paths, "components": SCHEMAS}


CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a page without scripts
_STYLE = "body{font:16px sans-serif;max-width:60em;margin:2em auto}td{padding:.1em 1em .1em 0;vertical-align:top}"


def docs_page(description: dict[str, Any]) -> str:
    """Returns an OpenAPI description as an HTML page."""
    info = description["info"]
    title, text = escape(f"{info['title']} {info['version']}"), escape(info["description"])
    parts = [f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>"]
    parts.append(f"<h1>{title}</h1><p>{text} <a href=openapi.json>openapi.json</a></p>")
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _operation(f"{method.upper()} {path}", operation)
    for name, schema in description["components"]["schemas"].items():
        fields = schema.get("properties", {}).items()
        parts += [f"<h2>{escape(name)}</h2>", _table((field, _summary(value)) for field, value in fields)]
    return "\n".join(parts)


def _operation(title: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{escape(title)}</code></h2><p>{escape(operation.get('summary', ''))}</p>"
    headers = operation.get("parameters", ())
    yield _table((each["name"], each.get("description", each["in"])) for each in headers)
    body = operation.get("requestBody", {"content": {"application/json": {"schema": {}}}})["content"][
        "application/json"
    ]
    yield _table((name, _summary(value)) for name, value in body["schema"].get("properties", {}).items())
    yield _table((status, each["description"]) for status, each in operation.get("responses", {}).items())


def _summary(schema: dict[str, Any]) -> str:
    kinds = [each.get("type", "") for each in schema.get("oneOf", [schema])]
    names = dict.fromkeys(name for kind in kinds for name in ([kind] if isinstance(kind, str) else kind))
    return " ".join(filter(None, [" or ".join(filter(None, names)), schema.get("description", "")]))


def _table(rows: Iterator[tuple[str, str]]) -> str:
    told = (f"<tr><td><code>{escape(name)}</code><td>{escape(text)}" for name, text in rows)
    return f"<table>{''.join(told)}</table>"
