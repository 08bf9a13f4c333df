"""OpenAPI description of the hot routes. Fields that are not listed pass through to the engine."""

from typing import Any

_HEADERS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("x-slo-ttft-ms", {"type": "number"}, "Time to first token promised; `x-llm-d-slo-ttft-ms` alike"),
    ("x-slo-tpot-ms", {"type": "number"}, "Time per output token promised; `x-llm-d-slo-tpot-ms` alike"),
    ("x-slo-ttlt-ms", {"type": "number"}, "Time to last token promised; `x-llm-d-slo-ttlt-ms` alike"),
    ("x-priority", {"type": "integer"}, "Lower is earlier; outranks the body's; clamped by the tenant's ceiling"),
    ("x-hmas-importance", {"type": "number", "minimum": 0.5, "maximum": 1}, "Scales SLOs that nobody stated"),
    ("x-llm-d-inference-fairness-id", {"type": "string", "maxLength": 128}, "A flow inside the tenant"),
    ("x-request-id", {"type": "string", "maxLength": 128}, "Echoed; `hmas why` knows the request by it"),
)

_COMMON: dict[str, Any] = {
    "model": {"type": "string", "description": "A model or alias of `/v1/models`"},
    "stream": {"type": "boolean", "default": False},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number"},
    "top_p": {"type": "number"},
    "n": {"type": "integer", "enum": [1]},
    "priority": {"type": "integer", "description": "Lower is earlier"},
}

_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"type": "string"},
        "content": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}]},
    },
}
_PROMPT = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}

SCHEMAS: dict[str, Any] = {
    "schemas": {
        "ChatCompletionRequest": {
            "type": "object",
            "required": ["model", "messages"],
            "additionalProperties": True,
            "properties": {
                **_COMMON,
                "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
                "max_completion_tokens": {"type": "integer", "minimum": 1},
            },
        },
        "CompletionRequest": {
            "type": "object",
            "required": ["model", "prompt"],
            "additionalProperties": True,
            "properties": {**_COMMON, "prompt": _PROMPT},
        },
        "Error": {
            "type": "object",
            "properties": {
                "error": {
                    "type": "object",
                    "properties": {
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                        "param": {"type": "string", "nullable": True},
                        "code": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                        "reason": {"type": "string"},
                        "retry_after_s": {"type": "integer"},
                        "estimated_wait_s": {"type": "number"},
                        "predicted_ttft_s": {"type": "number"},
                    },
                }
            },
        },
    },
    "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
}

_ERRORS = {
    "400": "The request cannot be served; `param` names the field or header",
    "401": "No key, or a wrong one",
    "403": "The tenant may not use this model",
    "404": "No such model",
    "408": "The request came too slowly",
    "413": "The body is too large",
    "429": "Over a bound of the tenant or of the pool; `Retry-After` is computed from the backlog",
    "502": "The engine or its worker failed",
    "503": "No engine is left, or the gateway is shutting down",
}


def _route(summary: str, schema: str) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        "post": {
            "summary": summary,
            "security": [{"key": []}],
            "parameters": [
                {"name": name, "in": "header", "schema": kind, "description": text} for name, kind, text in _HEADERS
            ],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
            },
            "responses": {
                "200": {
                    "description": "The engine's answer, untouched; server-sent events with `stream`",
                    "content": {"application/json": {}, "text/event-stream": {}},
                },
                **{status: {"description": text, "content": error} for status, text in _ERRORS.items()},
            },
        }
    }


HOT_ROUTES: dict[str, Any] = {
    "/v1/chat/completions": _route("Chat completion", "ChatCompletionRequest"),
    "/v1/completions": _route("Text completion", "CompletionRequest"),
}
