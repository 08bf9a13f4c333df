"""From an HTTP answer that is no success to the shared `Outcome` and to a group name for the table of errors."""

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


def refusal(status: int, reason: str | None, body: bytes) -> tuple[Outcome, str, str]:
    """Outcome, group name and message. The mesh names its reason (`x-hmas-reason` or the error's code); for any other
    server the status decides."""
    code, message = _error_fields(body)
    named = reason or code
    group = f"{status} {named}".strip()
    return outcome_of(named, _BY_STATUS.get(status)), group, message


def outcome_of(code: str, otherwise: Outcome | None = None) -> Outcome:
    """The outcome that `code` names, else `otherwise`, else an engine error."""
    try:
        return Outcome(code)
    except ValueError:
        return otherwise or Outcome.ENGINE_ERROR


def _error_fields(body: bytes) -> tuple[str, str]:
    """`code` (or `type`) and `message` of an OpenAI error object, or of vLLM's flat one."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", body[:200].decode("utf-8", "replace")
    error = value.get("error", value) if isinstance(value, dict) else {}
    if not isinstance(error, dict):
        return "", str(error)[:500]
    return str(error.get("code") or error.get("type") or ""), str(error.get("message", ""))[:500]
