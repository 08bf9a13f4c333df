"""Error objects, made from a request's outcome or from the error answer of an engine.

OpenAI's `{"error": {"message", "type", "param", "code", "reason"}}` is sent as a body with headers or, once a stream
has begun, as an SSE event. A refusal for lack of capacity adds `retry_after_s`, `estimated_wait_s` and
`predicted_ttft_s`. The same fields come in Anthropic's `{"type": "error", "error": {...}}` where that API is spoken,
with its types.
"""

from dataclasses import dataclass
from enum import Enum
from math import ceil, isfinite
from typing import Any

import orjson

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.laws.figures import MAX_TEXT, shortened

MAX_MESSAGE_CHARS = 4096
MAX_RETRY_AFTER_S = 3600.0
SSE_DONE = b"data: [DONE]\n\n"
Headers = list[tuple[bytes, bytes]]


class ErrorShape(Enum):
    """Whose API an error is told in. That of the Responses API differs from OpenAI's others in a stream alone."""

    OPENAI = "openai"
    RESPONSES = "responses"
    ANTHROPIC = "anthropic"


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}

# Outcomes for which OpenAI has a code of its own; for every other one, `code` is the outcome's name.
_CODES = {
    Outcome.UNAUTHENTICATED: "invalid_api_key",
    Outcome.UNKNOWN_MODEL: "model_not_found",
    Outcome.UNKNOWN_PATH: "not_found",
    Outcome.NEVER_FITS: "context_length_exceeded",
}


class InvalidRequest(ValueError):
    """A request cannot be served because of what its client sent. `param` names the body field or header at fault."""

    def __init__(self, message: str, param: str | None = None, outcome: Outcome = Outcome.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = ApiError.of(outcome, message, param=param)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """One error answer; times in seconds. `retry_after_s` None: there is no `Retry-After` header. `retry_helps` false:
    the header `x-should-retry: false` tells the client not to retry. `allow`: the methods that the path takes, in
    an answer 405."""

    status: int
    message: str
    type: str
    code: str | int | None
    reason: str
    retry_helps: bool
    param: str | None = None
    retry_after_s: int | None = None
    estimated_wait_s: float | None = None
    predicted_ttft_s: float | None = None
    allow: str = ""

    @staticmethod
    def of(
        outcome: Outcome,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        estimated_wait_s: float | None = None,
        predicted_ttft_s: float | None = None,
    ) -> "ApiError":
        """Returns the error answer for an outcome. An infinite `retry_after_s` tells the client not to retry. The
        message of a request that would be late names the time that `Retry-After` has."""
        row = OUTCOME_TABLE[outcome]
        never = retry_after_s is not None and not isfinite(retry_after_s)
        helps = row.retry_helps and not never
        whole_s = _whole_seconds(row.http_status, retry_after_s) if helps else None
        if outcome is Outcome.SLO_UNREACHABLE and retry_after_s is not None and helps:
            message = f"{message} Or retry after {whole_s} s."
        return ApiError(
            status=row.http_status,
            message=message[:MAX_MESSAGE_CHARS],
            type=row.error_type,
            code=_CODES.get(outcome, outcome.value),
            reason=outcome.value,
            retry_helps=helps,
            param=param,
            retry_after_s=whole_s,
            estimated_wait_s=estimated_wait_s,
            predicted_ttft_s=predicted_ttft_s,
        )

    def body(self, shape: ErrorShape = ErrorShape.OPENAI) -> bytes:
        error = self._fields()
        if shape is not ErrorShape.ANTHROPIC:
            return orjson.dumps({"error": error})
        other = "invalid_request_error" if self.status < 500 else "api_error"
        error["type"] = _ANTHROPIC_TYPES.get(self.status, other)
        return orjson.dumps({"type": "error", "error": error})

    def _fields(self) -> dict[str, Any]:
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
            "reason": self.reason,
        }
        if self.retry_after_s is not None:
            error["retry_after_s"] = self.retry_after_s
        if self.estimated_wait_s is not None:
            error["estimated_wait_s"] = round(self.estimated_wait_s, 3)
        if self.predicted_ttft_s is not None:
            error["predicted_ttft_s"] = round(self.predicted_ttft_s, 3)
        return error

    def headers(self) -> Headers:
        headers = [(b"content-type", b"application/json"), (b"x-hmas-reason", self.reason.encode())]
        if not self.retry_helps:
            headers.append((b"x-should-retry", b"false"))
        if self.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after_s))
        if self.reason == Outcome.DRAINING:
            headers.append((b"connection", b"close"))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if self.allow:
            headers.append((b"allow", self.allow.encode()))
        return headers

    def events(self, shape: ErrorShape = ErrorShape.OPENAI) -> bytes:
        """Returns the SSE events that end a stream which has begun: the error and, among unnamed events, `[DONE]`."""
        if shape is ErrorShape.OPENAI:
            return b"data: " + self.body() + b"\n\n" + SSE_DONE
        data = self.body(shape)
        if shape is ErrorShape.RESPONSES:  # OpenAI's clients read the nested object, others the fields beside it
            fields = self._fields()
            envelope = {"code": fields["code"], "message": self.message, "param": self.param, "sequence_number": 0}
            data = orjson.dumps({"type": "error", **envelope, "error": fields})
        return b"event: error\ndata: " + data + b"\n\n"


def _whole_seconds(status: int, retry_after_s: float | None) -> int | None:
    if retry_after_s is None:
        return 1 if status in (429, 503) else None
    return max(1, ceil(min(retry_after_s, MAX_RETRY_AFTER_S)))


def engine_error(status: int, data: bytes) -> ApiError:
    """Returns the error answer for a request that an engine refused with HTTP `status` and the body `data`.

    `data` may be vLLM's nested error object, the flat one of SGLang and older vLLM, FastAPI's `detail` or plain text.
    A status from 400 to 499 is kept; any other becomes 400.
    """
    status = status if 400 <= status < 500 else 400
    fields = _error_fields(data)
    row = OUTCOME_TABLE[Outcome.ENGINE_REFUSED]
    code = fields.get("code")
    return ApiError(
        status=status,
        message=_message(fields, data),
        type=_text(fields.get("type")) or row.error_type,
        code=code if isinstance(code, str | int) else status,
        reason=Outcome.ENGINE_REFUSED.value,
        retry_helps=status in (408, 409, 429),
        param=_text(fields.get("param")) or None,
    )


def _error_fields(data: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    nested = parsed.get("error")
    if isinstance(nested, dict):
        return nested
    if isinstance(nested, str):
        return {"message": nested}
    if "detail" in parsed:
        return {"message": _detail(parsed["detail"])}
    return parsed


def _detail(detail: Any) -> str:
    """Returns the message in FastAPI's `detail`, which is a text or a list of `{"loc": [...], "msg": ...}`."""
    if isinstance(detail, str):
        return detail
    if isinstance(detail, list):
        lines = (
            f"{'.'.join(map(str, each.get('loc', ())))}: {each.get('msg', '')}"
            for each in detail
            if isinstance(each, dict)
        )
        return "; ".join(lines)
    return orjson.dumps(detail).decode()


def _message(fields: dict[str, Any], data: bytes) -> str:
    message = _text(fields.get("message")) or data[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()
    return shortened(message or "the engine refused the request")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
