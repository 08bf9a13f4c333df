"""Checks a body of `/v1/chat/completions` or `/v1/completions`, estimates its prompt's length in tokens, and writes the
body for the engine.

Fields that the gateway does not know are passed on. The engine's body is written again from the parsed one, so that
engine and gateway cannot understand one body differently, for instance if a field is given twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hmas.contracts.request import Request
from hmas.gateway.openai.errors import InvalidRequest
from hmas.gateway.tenants.terms import PRIORITY_LIMIT, Tenant, terms_of
from hmas.laws.tokens import content_text, estimate_prompt_tokens

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
MAX_MODEL_CHARS = 256
PERCEIVED_CHARS = 4096  # half from the prompt's head, half from its tail
_MAX_TOKENS_LIMIT = 2**31

# Fields that are removed from the engine's body. The mesh makes the engine's request ids itself, because ids that
# clients choose could be the same.
_GATEWAY_FIELDS = ("priority", "hmas_replay", "request_id", "rid")


@dataclass(slots=True, kw_only=True)
class Call:
    """One parsed body. `body` holds the fields for the engine; `model` is the model name or alias that the client sent.

    `prompt_tokens` is an estimate. `strip_usage`: the gateway asked the engine for usage that the client did not ask
    for, so that it is removed from the stream. `replay_output_tokens`: fixed output length of a replayed request.
    """

    path: str
    model: str
    stream: bool
    prompt: Any  # text, messages or token ids
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    strip_usage: bool
    replay_output_tokens: int | None
    body: dict[str, Any]

    def engine_body(self, pool: str) -> bytes:
        """Returns the body as JSON, with `pool` as the model."""
        self.body["model"] = pool
        return orjson.dumps(self.body)

    def perceived_text(self) -> str:
        """Returns the beginning and the end of the prompt's text for perception, at most PERCEIVED_CHARS characters."""
        return _head_and_tail(self.prompt)


def parse_call(path: str, data: bytes | bytearray, *, replay_enabled: bool) -> Call:
    """Parses and checks a body. `replay_enabled`: whether the field `hmas_replay` is allowed.

    Raises InvalidRequest, which names the field at fault.
    """
    body = _parse_object(data)
    stream = _optional(body, "stream", _is_bool, "true or false") or False
    _check_types(body)
    _check_single(body)
    prompt = _messages(body) if path == CHAT_PATH else _prompt(body)
    call = Call(
        path=path,
        model=_model(body),
        stream=stream,
        prompt=prompt,
        prompt_tokens=estimate_prompt_tokens(prompt),
        max_tokens=_max_tokens(body),
        priority=_optional(body, "priority", _is_priority, "a whole number between -2^31 and 2^31"),
        strip_usage=stream and not _asks_usage(body),
        replay_output_tokens=_replay(body, enabled=replay_enabled),
        body=body,
    )
    for name in _GATEWAY_FIELDS:
        body.pop(name, None)
    if call.strip_usage:
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return call


def request_of(call: Call, request_id: str, tenant: Tenant, headers: Mapping[bytes, bytes], now_s: float) -> Request:
    """Returns the request for the gateway agent; its model is the name or alias that the client sent.

    `now_s`: the arrival on this host's monotonic clock. Raises InvalidRequest if a header's value is out of its range.
    """
    terms = terms_of(headers, tenant, call.priority, stream=call.stream)
    return Request(
        id=request_id,
        model=call.model,
        tenant=tenant.name,
        flow=terms.flow,
        prompt_tokens=call.prompt_tokens,
        max_tokens=call.max_tokens,
        stream=call.stream,
        slo=terms.slo,
        slo_stated=terms.slo_stated,
        priority=terms.priority,
        weight=tenant.weight,
        importance=terms.importance,
        arrival_s=now_s,
        relegate=tenant.relegate,
    )


def _parse_object(data: bytes | bytearray) -> dict[str, Any]:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the request body must be a JSON object")
    return body


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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


_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")


def _check_types(body: dict[str, Any]) -> None:
    for name in _NUMBERS:
        if name in body:
            _optional(body, name, _is_number, "a number")
    options = _optional(body, "stream_options", lambda v: isinstance(v, dict), "an object")
    if options is not None:
        _optional(options, "include_usage", _is_bool, "true or false")


def _check_single(body: dict[str, Any]) -> None:
    """Raises InvalidRequest if the body asks for more than one answer, because a request is scheduled, judged and
    settled as one sequence."""
    for name in ("n", "best_of"):
        if name in body and (_optional(body, name, _is_limit, "a positive whole number") or 1) > 1:
            raise InvalidRequest(f"`{name}` above 1 is not supported: send one request for each answer", name)


def _model(body: dict[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_CHARS:
        raise InvalidRequest(f"`model` must be a text of 1 to {MAX_MODEL_CHARS} characters", "model")
    return model


def _messages(body: dict[str, Any]) -> list[Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest("`messages` must be a list with at least one message", "messages")
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest(f"`messages[{i}]` must be an object", f"messages[{i}]")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise InvalidRequest(f"`messages[{i}].role` must be a text such as `user`", f"messages[{i}].role")
        if not isinstance(message.get("content"), str | list | None):
            raise InvalidRequest(f"`messages[{i}].content` must be a text or a list", f"messages[{i}].content")
    return messages


def _prompt(body: dict[str, Any]) -> Any:
    """Returns the prompt, a text or a list of token ids. A list of exactly one prompt is unpacked; with more than one,
    InvalidRequest is raised."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str | list):
        if len(prompt) > 1:
            raise InvalidRequest("several prompts in one request are not supported: send one request each", "prompt")
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, list) or not prompt or not all(map(_is_int, prompt)):
        raise InvalidRequest("`prompt` must be a text or a list of token ids", "prompt")
    return prompt


def _max_tokens(body: dict[str, Any]) -> int | None:
    values = [
        _optional(body, name, _is_limit, "a positive whole number") for name in ("max_completion_tokens", "max_tokens")
    ]
    return next((value for value in values if value is not None), None)


def _asks_usage(body: dict[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


def _replay(body: dict[str, Any], *, enabled: bool) -> int | None:
    replay = body.get("hmas_replay")
    if replay is None:
        return None
    if not enabled:
        raise InvalidRequest("`hmas_replay` is disabled: start the gateway with HMAS_REPLAY_FIELD=true", "hmas_replay")
    if not isinstance(replay, dict) or not _is_limit(replay.get("output_tokens")):
        raise InvalidRequest('`hmas_replay` must be {"output_tokens": a positive whole number}', "hmas_replay")
    return int(replay["output_tokens"])


def _head_and_tail(prompt: Any) -> str:
    if isinstance(prompt, str):
        parts = [prompt]
    else:
        parts = [content_text(item.get("content")) for item in prompt if isinstance(item, dict)]
    if sum(map(len, parts)) + len(parts) <= PERCEIVED_CHARS:
        return "\n".join(parts)
    half = PERCEIVED_CHARS // 2
    head, tail = "", ""
    for part in parts:
        head += part[: half - len(head)] + "\n"
        if len(head) >= half:
            break
    for part in reversed(parts):
        room = half - len(tail)
        if room <= 0:
            break
        tail = part[-room:] + "\n" + tail
    return head + tail[:-1]
