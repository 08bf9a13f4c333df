"""How an engine's answer ends, in any form of the API: with its counts of tokens, or with an error of any shape, which
is turned into OpenAI's."""

from dataclasses import dataclass, replace
from typing import Any

import orjson

from hmas.contracts.outcome import Outcome
from hmas.gateway.api_form import ApiForm
from hmas.gateway.engines.answer_checks import ABORTED, NO_USAGE, Usage, fault_of_answer, usage_of
from hmas.gateway.engines.retold import retold
from hmas.laws.figures import MAX_TEXT, shortened

# Statuses for overload and for the mesh's own credentials: not the client's fault, so another engine may serve it.
_NOT_THE_CLIENTS = (401, 403, 407, 408, 425, 429)
CLIENTS_FAULT = frozenset(range(400, 500)).difference(_NOT_THE_CLIENTS)
_BUSY = (429, 503)  # the engine's own queue is full


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyEnd:
    """How an engine's answer ended. `data`: the last bytes for the client, or the engine's error body if it refused.
    `usage`: the engine's own counts. For the other fields see `hmas.contracts.execution.Ended`."""

    outcome: Outcome
    message: str = ""
    status: int = 0
    data: bytes = b""
    usage: Usage = NO_USAGE
    retryable: bool = False
    busy: bool = False
    unreached: bool = False
    given_up: bool = False


def plain_end(body: bytes, form: ApiForm, max_tokens: int | None = None, prompt_cached: int | None = None) -> ReplyEnd:
    """Returns the end of an answer with status 200 that is not streamed; its body may still be an error. `max_tokens`:
    the most that it may have, if the request says so. `prompt_cached`: as the engine said that computed the prompt for
    this one."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _no_answer("the engine's answer is not JSON")
    if isinstance(document, dict) and (document.get("object") == "error" or document.get("error")):
        return error_end(document)
    if fault := fault_of_answer(document, form, body):
        return replace(_no_answer(fault), given_up=fault in ABORTED)
    if isinstance(document, dict) and retold(document, prompt_cached):
        body = orjson.dumps(document)
    usage = usage_of(document, generated=0 if form.prefill_only else None) or NO_USAGE
    return ReplyEnd(outcome=Outcome.FINISHED, status=200, data=body, usage=usage.within(max_tokens))


def _no_answer(message: str) -> ReplyEnd:
    return ReplyEnd(outcome=Outcome.ENGINE_ERROR, message=message, status=200, retryable=True)


def error_end(document: Any, *, generated: bool = False) -> ReplyEnd:
    """Returns the end of an answer with status 200 that is an error or ended with one, by the status that it names.
    `generated`: tokens came before, so that the request cannot be retried."""
    code = error_object(document)["code"]
    status = code if isinstance(code, int) and 400 <= code <= 599 else 500
    return _refused(status, document, generated=generated)


def refusal(status: int, body: bytes) -> ReplyEnd:
    """Returns the end of an answer that the engine answered with an HTTP error.

    A 4xx status is the client's fault and passed on, except for overload and credentials; anything else is the
    engine's.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = body[: 4 * MAX_TEXT].decode("utf-8", "replace").strip()
    return _refused(status, document, generated=False)


def _refused(status: int, document: Any, *, generated: bool) -> ReplyEnd:
    error = error_object(document)
    message = error["message"] or f"the engine answered HTTP {status}"
    if status in CLIENTS_FAULT:
        error = {**error, "message": message, "code": error["code"] if error["code"] is not None else status}
        return ReplyEnd(
            outcome=Outcome.ENGINE_REFUSED, message=message, status=status, data=orjson.dumps({"error": error})
        )
    busy = status in _BUSY and not generated
    message = f"the engine answered HTTP {status}: {message}"
    return ReplyEnd(outcome=Outcome.ENGINE_ERROR, message=message, status=status, retryable=not generated, busy=busy)


def error_object(document: Any) -> dict[str, Any]:
    """Returns OpenAI's error object (message, type, param, code) for an engine's error document.

    It may have vLLM's nested, SGLang's flat or FastAPI's `detail` shape, or be plain text. No text in it is longer than
    `MAX_TEXT`.
    """
    error: Any = document
    if isinstance(document, dict):
        error = document.get("error") or document
    if not isinstance(error, dict):
        return {"message": _text(error), "type": "api_error", "param": None, "code": None}
    param, code = error.get("param"), error.get("code")
    return {
        "message": _text(error.get("message") or error.get("detail") or ""),
        "type": _text(error.get("type") or "invalid_request_error"),
        "param": None if param is None else _text(param),
        "code": code if code is None or isinstance(code, int) else _text(code),
    }


def _text(value: Any) -> str:
    """Returns a value of any type and size as an engine's text."""
    if isinstance(value, str):
        return shortened(value)
    try:
        return shortened(orjson.dumps(value).decode())
    except TypeError:  # the JSON writer allows less nesting than the parser
        return f"({type(value).__name__} nested too deeply)"
