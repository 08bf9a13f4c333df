"""The OpenAPI description of the two routes that generate text. Body fields not listed are passed on to the engine."""

from typing import Any

_HEADERS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("x-slo-ttft-ms", {"type": "number"}, "SLO for the time to first token, in ms; or `x-llm-d-slo-ttft-ms`"),
    ("x-slo-tpot-ms", {"type": "number"}, "SLO for the time per output token, in ms; or `x-llm-d-slo-tpot-ms`"),
    ("x-slo-ttlt-ms", {"type": "number"}, "SLO for the time to last token, in ms; or `x-llm-d-slo-ttlt-ms`"),
    ("x-priority", {"type": "integer"}, "Lower is served earlier; outranks the body's; bounded by the tenant"),
    ("x-hmas-importance", {"type": "number", "minimum": 0.5, "maximum": 1}, "Higher makes default SLOs stricter"),
    ("x-llm-d-inference-fairness-id", {"type": "string", "maxLength": 128}, "Name of a flow of the tenant"),
    ("x-request-id", {"type": "string", "maxLength": 128}, "Returned; `hmas why` finds a request by it"),
)

_COMMON: dict[str, Any] = {
    "model": {"type": "string", "description": "A model or alias that `/v1/models` lists"},
    "stream": {"type": "boolean", "default": False},
    "stream_options": {"type": "object", "properties": {"include_usage": {"type": "boolean"}}},
    "max_tokens": {"type": "integer", "minimum": 1},
    "temperature": {"type": "number"},
    "top_p": {"type": "number"},
    "n": {"type": "integer", "enum": [1]},
    "priority": {"type": "integer", "description": "Lower is served earlier"},
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
    "400": "The request is not valid; `param` names the field or header at fault",
    "401": "The API key is missing or not valid",
    "403": "The tenant may not use this model",
    "404": "The model does not exist",
    "408": "The client sent the request too slowly",
    "413": "The request body is too large",
    "429": "A limit of the tenant or of the model's queue is reached; retry after `Retry-After` seconds",
    "502": "The engine or its worker failed",
    "503": "No worker serves the model, or the gateway is shutting down",
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
                    "description": "The engine's answer, unchanged; server-sent events if `stream` is true",
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
