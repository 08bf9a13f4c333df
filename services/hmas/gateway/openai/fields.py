"""The fields of a body beside its prompt. What is wrong with one raises InvalidRequest, which names it."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.api_form import ApiForm
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai.tiers import PRIORITY_LIMIT, TIER_NAMES, ServiceTier

MAX_MODEL_CHARS = 256
MAX_XARGS_BYTES = 4096
_MAX_TOKENS_LIMIT = 2**31
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_priority(value: Any) -> bool:
    return _is_int(value) and abs(value) < PRIORITY_LIMIT


def _is_limit(value: Any) -> bool:
    return _is_int(value) and 1 <= value < _MAX_TOKENS_LIMIT


def _optional(body: dict[str, Any], name: str, valid: Callable[[Any], bool], wanted: str) -> Any:
    """Returns the field's value, or None if it is absent or null. Raises InvalidRequest, with `wanted`, unless `valid`
    accepts the value."""
    value = body.get(name)
    if value is not None and not valid(value):
        raise InvalidRequest(f"`{name}` must be {wanted}", name)
    return value


def flag(body: dict[str, Any], name: str) -> bool:
    """Returns whether a field is true; it is not if it is absent or null."""
    value = body.get(name)
    if not isinstance(value, bool | None):
        raise InvalidRequest(f"`{name}` must be true or false", name)
    return value is True


def integer(body: dict[str, Any], name: str) -> int | None:
    """Returns a field's whole number, None if it is absent or null."""
    number: int | None = _optional(body, name, _is_int, "a whole number")
    return number


def count(body: dict[str, Any], name: str) -> int | None:
    """Returns a field's positive whole number, None if it is absent or null."""
    number: int | None = body.get(name)
    if number is not None and not _is_limit(number):
        raise InvalidRequest(f"`{name}` must be a positive whole number", name)
    return number


def priority(body: dict[str, Any]) -> int | None:
    number: int | None = _optional(body, "priority", _is_priority, "a whole number between -2^31 and 2^31")
    return number


def check_types(body: dict[str, Any]) -> None:
    """Checks the types of sampling parameters, and of `stream_options`, which the gateway changes."""
    for name in _NUMBERS:
        if name in body:
            _optional(body, name, _is_number, "a number")
    options = _optional(body, "stream_options", _is_object, "an object")
    if options is not None:
        _optional(options, "include_usage", _is_bool, "true or false")


def asks_usage(body: dict[str, Any]) -> bool:
    """Returns whether the client asks for the counts of tokens in a stream."""
    return bool((body.get("stream_options") or {}).get("include_usage"))


def ask_usage(body: dict[str, Any]) -> None:
    """Makes the body ask for the counts of tokens in a stream."""
    body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}


def take_xargs(body: dict[str, Any]) -> dict[str, Any]:
    """Takes the client's extra arguments for vLLM out of the body, without those that are the mesh's own."""
    xargs = _optional(body, "vllm_xargs", _is_object, "an object") or {}
    body.pop("vllm_xargs", None)
    if xargs and len(written(xargs)) > MAX_XARGS_BYTES:
        raise InvalidRequest(f"`vllm_xargs` must be at most {MAX_XARGS_BYTES} bytes", "vllm_xargs")
    return {name: value for name, value in xargs.items() if not name.startswith("hmas_")}


def model(body: dict[str, Any]) -> str:
    named = body.get("model")
    if not isinstance(named, str) or not 0 < len(named) <= MAX_MODEL_CHARS:
        raise InvalidRequest(f"`model` must be a text of 1 to {MAX_MODEL_CHARS} characters", "model")
    return named


def max_tokens(body: dict[str, Any], form: ApiForm) -> int | None:
    """Returns the client's bound on the tokens of the answer, None without one; 0 for a form without an answer."""
    if form.prefill_only:
        return 0
    values = [count(body, name) for name in form.bounds]
    return next((value for value in values if value is not None), None)


def tier(body: dict[str, Any]) -> ServiceTier | None:
    named = body.get("service_tier")
    if named is None:
        return None
    if not isinstance(named, str) or named not in TIER_NAMES:
        raise InvalidRequest(f"`service_tier` must be one of {', '.join(TIER_NAMES)}", "service_tier")
    return TIER_NAMES[named]


def replay(body: dict[str, Any], form: ApiForm, *, enabled: bool) -> int | None:
    """Returns the length that a replay wants for the answer, in tokens; None: the request is no replay."""
    wanted = body.get("hmas_replay")
    if wanted is None:
        return None
    if not form.chunked:
        raise InvalidRequest(f"`hmas_replay` works at {CHAT_PATH} and {COMPLETIONS_PATH} alone", "hmas_replay")
    if not enabled:
        raise InvalidRequest("`hmas_replay` is disabled: start the gateway with HMAS_REPLAY_FIELD=true", "hmas_replay")
    if not isinstance(wanted, dict) or not _is_limit(wanted.get("output_tokens")):
        raise InvalidRequest('`hmas_replay` must be {"output_tokens": a positive whole number}', "hmas_replay")
    return int(wanted["output_tokens"])


def replay_fields(output_tokens: int) -> dict[str, object]:
    """Returns the fields that make vLLM and SGLang generate exactly `output_tokens`, whatever limits the client set;
    None removes a field."""
    return {
        "max_tokens": output_tokens,
        "max_completion_tokens": None,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "stop": None,
    }


def written(value: Any) -> bytes:
    """Returns a value of a body as JSON. Raises InvalidRequest if it is nested too deeply."""
    try:
        return orjson.dumps(value)
    except TypeError as error:  # the JSON writer allows less nesting than the parser
        raise InvalidRequest(f"the body cannot be passed on to an engine, nest it less deeply: {error}") from None


def override(body: dict[str, Any], values: Mapping[str, object]) -> None:
    """Sets fields of the body; None removes one."""
    for name, value in values.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value
