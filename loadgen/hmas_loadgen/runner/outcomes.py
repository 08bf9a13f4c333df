"""Turns an HTTP error into the mesh's `Outcome` and into a kind of error, by which the table of errors counts."""

import orjson

from hmas.contracts.outcome import Outcome

MAX_ERROR_BYTES = 65_536

_BY_STATUS: dict[int, Outcome] = {
    400: Outcome.INVALID_REQUEST,
    401: Outcome.UNAUTHENTICATED,
    403: Outcome.FORBIDDEN,
    404: Outcome.UNKNOWN_MODEL,
    408: Outcome.CLIENT_TOO_SLOW,
    413: Outcome.BODY_TOO_LARGE,
    429: Outcome.POOL_QUEUE_FULL,
    499: Outcome.CANCELLED,
    500: Outcome.ENGINE_ERROR,
    502: Outcome.ENGINE_ERROR,
    503: Outcome.NO_ENGINE,
    504: Outcome.TIMED_OUT,
}


def refusal(status: int, body: bytes) -> tuple[Outcome, str, str]:
    """Returns outcome, kind of error and message of an HTTP error. The mesh names the outcome as the error's reason;
    for any other server the HTTP status decides."""
    named, message = _error_fields(body)
    group = f"{status} {named}".strip()
    return outcome_of(named, _BY_STATUS.get(status)), group, message


def outcome_of(code: str, otherwise: Outcome | None = None) -> Outcome:
    """Returns the outcome that `code` names; if it names none, `otherwise`; if that is None, ENGINE_ERROR."""
    try:
        return Outcome(code)
    except ValueError:
        return otherwise or Outcome.ENGINE_ERROR


def _error_fields(body: bytes) -> tuple[str, str]:
    """Returns reason (or code, or type) and message of an error body, in OpenAI's form or in vLLM's flat one. If it is
    not JSON, the reason is empty and the message the start of the body."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", body[:200].decode("utf-8", "replace")
    error = value.get("error", value) if isinstance(value, dict) else {}
    if not isinstance(error, dict):
        return "", str(error)[:500]
    return str(error.get("reason") or error.get("code") or error.get("type") or ""), str(error.get("message", ""))[:500]
