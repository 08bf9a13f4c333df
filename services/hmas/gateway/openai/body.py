"""Checks a body of any form of the API, estimates its prompt's length in tokens, and writes the body for the engine.

Fields that the gateway does not know are passed on, except for those that steer an engine, which a tenant must be
allowed. A body is parsed once, and of that nothing is kept but what a `Call` holds: the engine's body as bytes. It is
written anew from the parsed one, so that engine and gateway cannot understand one body differently, for instance if a
field is given twice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from hmas.contracts.job import NO_CHAIN, PrefixChain
from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.contracts.request import Request
from hmas.gateway.engines.body import replay_fields
from hmas.gateway.openai.chains import chain_of
from hmas.gateway.openai.errors import InvalidRequest
from hmas.gateway.openai.forms import FORMS, ApiForm
from hmas.gateway.tenants.terms import PRIORITY_LIMIT, TIER_NAMES, ServiceTier, Tenant, Terms

MAX_MODEL_CHARS = 256
PERCEIVED_CHARS = 4096  # half from the prompt's head, half from its tail
MAX_XARGS_BYTES = 4096
MAX_ANSWERS = 32  # of one request: each is scheduled as a request of its own
_MAX_TOKENS_LIMIT = 2**31
_SLACK_BYTES = 4096  # what the gateway may add to a body

# Fields that are removed from the engine's body. The mesh makes the engine's request ids itself, because ids that
# clients choose could be the same.
_GATEWAY_FIELDS = ("priority", "hmas_replay", "request_id", "rid")

_SALTED = (CHAT_PATH, COMPLETIONS_PATH, "/v1/responses")  # paths at which engines know the field `cache_salt`

# Fields of vLLM and SGLang by which a client would steer the engine itself, and what they do there.
STEERING_FIELDS: Mapping[str, str] = {
    "kv_transfer_params": "it directs the transfer of KV caches between engines",
    "ec_transfer_params": "it directs the transfer of encoder caches between engines",
    "bootstrap_host": "it names the engine that KV caches are fetched from",
    "bootstrap_port": "it names the engine that KV caches are fetched from",
    "bootstrap_room": "it names the KV cache that is fetched",
    "routed_dp_rank": "it chooses the engine's data-parallel rank",
    "disagg_prefill_dp_rank": "it chooses the data-parallel rank of the prefill engine",
    "data_parallel_rank": "it chooses the engine's data-parallel rank",
    "data_parallel_rank_decode": "it chooses the data-parallel rank of the decoding engine",
    "cache_salt": "it separates or shares entries of the prefix cache",
    "extra_key": "it separates or shares entries of the prefix cache",
    "session_id": "it joins a session that other requests share",
    "session_params": "it continues or branches a session that other requests share",
    "lora_path": "it chooses an adapter, which is another model",
    "vllm_xargs": "it is passed to extensions of the engine",
    "custom_params": "it is passed to extensions of the engine",
    "custom_logit_processor": "it is code that the engine runs",
    "logits_processors": "it names code that the engine runs",
    "chat_template": "it is a template that the engine runs",
    "prompt_embeds": "it holds serialised tensors",
    "mm_processor_kwargs": "it configures how the engine reads media",
    "media_io_kwargs": "it configures how the engine reads media",
    "ngram_corpus_id": "it chooses the corpus that the engine speculates with",
    "custom_labels": "it makes new series in the engine's metrics",
    "return_hidden_states": "it slows the engine for everyone",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What may be in a body. `replay_enabled`: whether the field `hmas_replay` may be; `allowed_fields`: those of the
    steering fields that may be. `tenant`: the sender's name, by which chains of prompts are told apart. `cache_salt`:
    what keeps its entries of the engines' prefix caches apart from those of other tenants; empty: nothing. `relayed`:
    whether the gateway relays the answer, so that it can ask for several and put them together, and leave out what the
    client did not ask for. `follow_prompts`: whether prompts have chains.
    """

    tenant: str = ""
    cache_salt: str = ""
    replay_enabled: bool = False
    relayed: bool = True
    allowed_fields: frozenset[str] = frozenset()
    follow_prompts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is kept of a body. `model` is the model name or alias that the client sent.

    `tier` is the service tier that it asks for. `prompt_tokens` is an estimate. `text` is the beginning and the end of
    the prompt for perception, at most PERCEIVED_CHARS characters and a line break. `strip_usage`: the gateway asked the
    engine for usage that the client did not ask for, so that it is removed from the stream. `xargs`: the client's extra
    arguments for vLLM. `chain`: that of the prompt; a form without an answer has none. `rest`: the engine's body as
    JSON without its opening brace, and without the fields that `run_body` adds.
    """

    form: ApiForm
    model: str
    stream: bool
    text: str
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    tier: ServiceTier
    strip_usage: bool
    xargs: Mapping[str, Any]
    chain: PrefixChain = NO_CHAIN
    rest: bytes


def parse_call(path: str, data: bytes | bytearray, rules: CallRules) -> Call:
    """Parses and checks a body for one answer. Raises InvalidRequest, which names the field at fault."""
    (call,) = parse_calls(path, data, rules).parts
    return call


@dataclass(frozen=True, slots=True)
class Calls:
    """A body as the calls for one answer each that it is divided into, prompt by prompt. `answers`: how many there are
    to each prompt. `usage`: whether the client asked for the counts of tokens in a stream."""

    parts: tuple[Call, ...]
    answers: int
    usage: bool


def parse_calls(path: str, data: bytes | bytearray, rules: CallRules) -> Calls:
    """Parses and checks a body. Raises InvalidRequest, which names the field at fault.

    A request for several answers, or with several prompts, is divided, because each sequence is scheduled, judged and
    settled by itself.
    """
    form = FORMS[path]
    body = _parse_object(data)
    bodies, answers = _divided(body, form) if rules.relayed else ([body], 1)
    if len(bodies) == 1:
        return Calls((_call(form, body, rules, len(data)),), answers, False)
    _check_types(body)
    usage, calls = _asks_usage(body), list[Call]()
    for each in bodies:
        if body.get("stream"):
            each["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        calls.append(_call(form, each, rules, len(data)))
    return Calls(tuple(calls), answers, usage)


def _divided(body: dict[str, Any], form: ApiForm) -> tuple[list[dict[str, Any]], int]:
    """Returns the bodies, for one answer each, that a body is divided into, and the number of answers to each prompt.
    With a seed each answer has its own, as vLLM makes them."""
    if not form.chunked:
        return [body], 1
    answers = _optional(body, "n", _is_limit, "a positive whole number") or 1
    if (_optional(body, "best_of", _is_limit, "a positive whole number") or 1) > answers:
        raise InvalidRequest("`best_of` above `n` is not supported: send one request for each answer", "best_of")
    prompt = body.get("prompt") if form.path == COMPLETIONS_PATH else None
    several = isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str | list)
    prompts = prompt if several and isinstance(prompt, list) else [prompt]
    count = answers * len(prompts)
    if count > MAX_ANSWERS:
        message = f"a request may have at most {MAX_ANSWERS} answers (`n` times prompts), not {count}: send several"
        raise InvalidRequest(message, "prompt" if several else "n")
    if count == 1:
        return [body], 1
    seed = _optional(body, "seed", _is_int, "a whole number")
    shared = {name: value for name, value in body.items() if name not in ("n", "best_of")}
    bodies = []
    for each in prompts:
        for number in range(answers):
            own: dict[str, Any] = {} if seed is None else {"seed": seed + number}
            bodies.append(shared | own | ({"prompt": each} if several else {}))
    return bodies, answers


def _call(form: ApiForm, body: dict[str, Any], rules: CallRules, size: int) -> Call:
    """Returns the call of a body for one answer, which it changes; `size` is that of the client's body."""
    stream = not form.prefill_only and (_optional(body, "stream", _is_bool, "true or false") or False)
    _check_types(body)
    _check_steering(body, rules.allowed_fields)
    prompt = form.read(body)
    model = _model(body)
    max_tokens = _max_tokens(body, form)
    priority = _optional(body, "priority", _is_priority, "a whole number between -2^31 and 2^31")
    tier = _tier(body)
    replay_output_tokens = _replay(body, form, enabled=rules.replay_enabled)
    xargs = _xargs(body)
    strip_usage = rules.relayed and stream and form.chunked and not _asks_usage(body)
    for name in _GATEWAY_FIELDS:
        body.pop(name, None)
    if strip_usage:
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    if replay_output_tokens is not None:
        _override(body, replay_fields(replay_output_tokens))
    if rules.cache_salt and form.path in _SALTED:  # before what a client sets, so that it reaches no other tenant's
        body["cache_salt"] = rules.cache_salt + str(body.get("cache_salt") or "")
    if form.fixed is not None:
        body |= form.fixed
    return Call(
        form=form,
        model=model,
        stream=stream,
        text=_head_and_tail(prompt.texts),
        prompt_tokens=prompt.tokens,
        max_tokens=max_tokens,
        priority=priority,
        tier=tier,
        strip_usage=strip_usage,
        xargs=xargs,
        chain=chain_of(form.path, body, rules.tenant) if rules.follow_prompts and not form.prefill_only else NO_CHAIN,
        rest=_rest(body, size),
    )


def _rest(body: dict[str, Any], size: int) -> bytes:
    """Returns the body for an engine, without its opening brace and its model. `size`: that of the client's body."""
    del body["model"]
    written = _written(body)
    if len(written) > 2 * size + _SLACK_BYTES:
        raise InvalidRequest("the numbers in the body are more than twice as long when written out: write them out")
    return written[1:]


def _written(document: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(document)
    except TypeError as error:  # the JSON writer allows less nesting than the parser
        raise InvalidRequest(f"the body cannot be passed on to an engine, nest it less deeply: {error}") from None


def _override(body: dict[str, Any], fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = value


def request_of(
    call: Call,
    request_id: str,
    tenant: Tenant,
    terms: Terms,
    now_s: float,
    prompt_tokens: int | None = None,
    *,
    relayed: bool = True,
) -> Request:
    """Returns the request for the gateway agent; its model is the name or alias that the client sent.

    `now_s`: the arrival on this host's monotonic clock. `prompt_tokens`: those of the prompt, if more is known of them
    than the estimate. An answer that is not `relayed` by the gateway is to the mesh one that is not streamed: nothing
    of it is seen before its end.
    """
    return Request(
        id=request_id,
        model=call.model,
        tenant=tenant.name,
        flow=terms.flow,
        prompt_tokens=call.prompt_tokens if prompt_tokens is None else prompt_tokens,
        max_tokens=call.max_tokens,
        stream=call.stream and relayed,
        slo=terms.slo,
        slo_stated=terms.slo_stated,
        priority=terms.priority,
        weight=tenant.weight,
        importance=terms.importance,
        arrival_s=now_s,
        relegate=tenant.relegate,
        prefix=call.chain,
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


def _check_steering(body: dict[str, Any], allowed: frozenset[str]) -> None:
    for name in STEERING_FIELDS.keys() & body.keys():
        if name not in allowed and body[name] is not None:
            message = (
                f"this tenant may not send `{name}`, because {STEERING_FIELDS[name]}: leave it out, or ask the "
                "operator to allow it (`allowed_body_fields` in the tenants file)"
            )
            raise InvalidRequest(message, name)


def _xargs(body: dict[str, Any]) -> dict[str, Any]:
    """Takes the client's extra arguments for vLLM out of the body, without those that are the mesh's own."""
    xargs = _optional(body, "vllm_xargs", lambda v: isinstance(v, dict), "an object") or {}
    body.pop("vllm_xargs", None)
    if xargs and len(_written(xargs)) > MAX_XARGS_BYTES:
        raise InvalidRequest(f"`vllm_xargs` must be at most {MAX_XARGS_BYTES} bytes", "vllm_xargs")
    return {name: value for name, value in xargs.items() if not name.startswith("hmas_")}


def _model(body: dict[str, Any]) -> str:
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_CHARS:
        raise InvalidRequest(f"`model` must be a text of 1 to {MAX_MODEL_CHARS} characters", "model")
    return model


def _max_tokens(body: dict[str, Any], form: ApiForm) -> int | None:
    """Returns the client's bound on the tokens of the answer, None without one; 0 for a form without an answer."""
    if form.prefill_only:
        return 0
    values = [_optional(body, name, _is_limit, "a positive whole number") for name in form.bounds]
    return next((value for value in values if value is not None), None)


def _asks_usage(body: dict[str, Any]) -> bool:
    return bool((body.get("stream_options") or {}).get("include_usage"))


def _tier(body: dict[str, Any]) -> ServiceTier:
    tier = body.get("service_tier")
    if tier is None:
        return ServiceTier.DEFAULT
    if not isinstance(tier, str) or tier not in TIER_NAMES:
        raise InvalidRequest(f"`service_tier` must be one of {', '.join(TIER_NAMES)}", "service_tier")
    return TIER_NAMES[tier]


def _replay(body: dict[str, Any], form: ApiForm, *, enabled: bool) -> int | None:
    replay = body.get("hmas_replay")
    if replay is None:
        return None
    if not form.chunked:
        raise InvalidRequest(f"`hmas_replay` works at {CHAT_PATH} and {COMPLETIONS_PATH} alone", "hmas_replay")
    if not enabled:
        raise InvalidRequest("`hmas_replay` is disabled: start the gateway with HMAS_REPLAY_FIELD=true", "hmas_replay")
    if not isinstance(replay, dict) or not _is_limit(replay.get("output_tokens")):
        raise InvalidRequest('`hmas_replay` must be {"output_tokens": a positive whole number}', "hmas_replay")
    return int(replay["output_tokens"])


def _head_and_tail(parts: list[str]) -> str:
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
