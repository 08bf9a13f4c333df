"""Checks a body of any form of the API, estimates its prompt's length in tokens, and writes the body for the engine.

Fields that the gateway does not know are passed on, except for those that steer an engine, which a tenant must be
allowed. A body is parsed once, and of that nothing is kept but what a `Call` holds: the engine's body as bytes. It is
written anew from the parsed one, so that engine and gateway cannot understand one body differently, for instance if a
field is given twice. What several answers share is read and written once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson

from hmas.contracts.job import NO_CHAIN, PrefixChain
from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.api_form import ApiForm
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai import fields
from hmas.gateway.openai.chains import chain_of, root_of
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.steering import check_steering
from hmas.gateway.openai.tiers import ServiceTier

PERCEIVED_CHARS = 4096  # half from the prompt's head, half from its tail
MAX_ANSWERS = 32  # of one request: each is scheduled as a request of its own
MAX_ANSWERS_BYTES = 16 * 2**20  # of the bodies that engines get for one request
MAX_CONTAINERS = 2**18  # lists and objects of a body: what is slow to parse, and takes many times its size in memory
_LARGEST_SEED = 2**64 - 1  # the largest whole number that the JSON writer knows
_SLACK_BYTES = 4096  # what the gateway may add to a body

# Fields that are removed from the engine's body. The mesh makes the engine's request ids itself, because ids that
# clients choose could be the same.
_GATEWAY_FIELDS = ("priority", "hmas_replay", "request_id", "rid")

_SALTED = (CHAT_PATH, COMPLETIONS_PATH, "/v1/responses")  # paths at which engines know the field `cache_salt`


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """What may be in a body. `replay_enabled`: whether the field `hmas_replay` may be; `allowed_fields`: those of the
    steering fields that may be. `tenant`: the sender's name, by which chains of prompts are told apart. `cache_salt`:
    what keeps its entries of the engines' prefix caches apart from those of other tenants; empty: nothing. `relayed`:
    whether the gateway relays the answer, so that it can ask for several and put them together, and leave out what the
    client did not ask for. `follow_prompts`: whether prompts have chains. `recognised`: whether calls have digests.
    `usage`: whether a stream tells its counts of tokens though the body does not ask for them.
    """

    tenant: str = ""
    cache_salt: str = ""
    replay_enabled: bool = False
    relayed: bool = True
    allowed_fields: frozenset[str] = frozenset()
    follow_prompts: bool = True
    recognised: bool = False
    usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is kept of a body. `model` is the model name or alias that the client sent.

    `tier` is the service tier that it names; None: none. `prompt_tokens` is an estimate. `text` is the beginning and
    the end of the prompt for perception, at most PERCEIVED_CHARS characters and a line break. `strip_usage`: the
    gateway asked the engine for usage that the client did not ask for, so that it is removed from the stream.
    `xargs`: the client's extra arguments for vLLM. `chain`: that of the prompt; a form without an answer has none.
    `rest`: the engine's body as JSON without its opening brace, and without the fields that `run_body` adds, such as
    the `seed` by which an answer differs from others to its prompt. `digest`: of `rest`, by which the same body is
    recognised; may be empty.
    """

    form: ApiForm
    model: str
    stream: bool
    text: str
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    tier: ServiceTier | None
    strip_usage: bool
    xargs: Mapping[str, Any]
    chain: PrefixChain = NO_CHAIN
    seed: int | None = None
    rest: bytes
    digest: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """A body as the calls for one answer each that it is divided into, prompt by prompt.

    `prompts`: the call of each prompt, whose `rest` does not end yet with `shared`, the fields that all have in common.
    `answers`: how many there are to each prompt, the first with `seed`, if there is one, and each later one with the
    next number, as vLLM makes them. `usage`: whether the client asked for the counts of tokens in a stream of several
    answers; of a single one its `strip_usage` tells.
    """

    prompts: tuple[Call, ...]
    shared: bytes = b""
    answers: int = 1
    seed: int | None = None
    usage: bool = False

    def __len__(self) -> int:
        return self.answers * len(self.prompts)

    @property
    def size(self) -> int:
        """The bytes of the engines' bodies in all, as if none shared any."""
        return self.answers * sum(len(call.rest) + len(self.shared) for call in self.prompts)

    def each(self) -> Iterator[Call]:
        """Makes one call after the other. Those for the answers to one prompt share its bytes."""
        for prompt in self.prompts:
            call = replace(prompt, rest=prompt.rest + self.shared) if self.shared else prompt
            for number in range(self.answers):
                yield call if self.seed is None else replace(call, seed=self.seed + number)


def parse_call(path: str, data: bytes | bytearray, rules: CallRules) -> Call:
    """Parses and checks a body for one answer. Raises InvalidRequest, which names the field at fault."""
    (call,) = parse_calls(path, data, rules).prompts
    return call


def parse_calls(path: str, data: bytes | bytearray, rules: CallRules) -> Calls:
    """Parses and checks a body, in a time that is bounded by its size however many answers it asks for. Raises
    InvalidRequest, which names the field at fault.

    A request for several answers, or with several prompts, is divided, because each sequence is scheduled, judged and
    settled by itself.
    """
    form = FORMS[path]
    body = _parse_object(data)
    prompts, answers = _division(body, form) if rules.relayed else ([], 1)
    if answers == 1 and not prompts:
        calls = Calls(prompts=(_call(form, body, rules, len(data)),))
    else:
        calls = _divided(form, body, rules, len(data), prompts, answers)
    return _recognised(calls) if rules.recognised else calls


def _divided(
    form: ApiForm, body: dict[str, Any], rules: CallRules, size: int, prompts: list[Any], answers: int
) -> Calls:
    """Returns the calls of a body for several answers, or with several `prompts`. The body, which came in `size` bytes,
    is changed."""
    seed = fields.integer(body, "seed")
    if seed is not None and seed + answers > _LARGEST_SEED:
        raise InvalidRequest(f"`seed` must be below {_LARGEST_SEED - answers + 1} for {answers} answers", "seed")
    fields.check_types(body)
    usage = rules.usage or fields.asks_usage(body)
    for name in ("n", "best_of") if seed is None else ("n", "best_of", "seed"):
        body.pop(name, None)
    if body.get("stream"):
        fields.ask_usage(body)
    if prompts:
        calls = _of_prompts(form, body, rules, size, prompts)
    else:
        calls = Calls(prompts=(_call(form, body, rules, size),))
    calls = replace(calls, answers=answers, seed=seed, usage=usage)
    if calls.size > MAX_ANSWERS_BYTES:
        message = (
            f"the body for engines times {len(calls)} answers is {calls.size} bytes and may be {MAX_ANSWERS_BYTES}: "
            "ask for fewer answers at a time"
        )
        raise InvalidRequest(message, "prompt" if prompts else "n")
    return calls


def _division(body: dict[str, Any], form: ApiForm) -> tuple[list[Any], int]:
    """Returns a body's prompts if it has several, and the number of answers that it asks for to each prompt."""
    if not form.chunked:
        return [], 1
    answers = fields.count(body, "n") or 1
    if (fields.count(body, "best_of") or 1) > answers:
        raise InvalidRequest("`best_of` above `n` is not supported: send one request for each answer", "best_of")
    prompt = body.get("prompt") if form.path == COMPLETIONS_PATH else None
    several = isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str | list)
    prompts = prompt if several and isinstance(prompt, list) else []
    count = answers * max(1, len(prompts))
    if count > MAX_ANSWERS:
        message = f"a request may have at most {MAX_ANSWERS} answers (`n` times prompts), not {count}: send several"
        raise InvalidRequest(message, "prompt" if prompts else "n")
    return prompts, answers


def _call(form: ApiForm, body: dict[str, Any], rules: CallRules, size: int | None) -> Call:
    """Returns the call of a body for one answer, which it changes. `size` is that of the client's body; without it,
    the engine's body remains to be written."""
    stream = not form.prefill_only and fields.flag(body, "stream")
    fields.check_types(body)
    check_steering(body, rules.allowed_fields)
    prompt = form.read(body)
    model = fields.model(body)
    max_tokens = fields.max_tokens(body, form)
    priority = fields.priority(body)
    tier = fields.tier(body)
    replay_output_tokens = fields.replay(body, form, enabled=rules.replay_enabled)
    xargs = fields.take_xargs(body)
    counted = rules.relayed and stream and form.chunked
    strip_usage = counted and not (rules.usage or fields.asks_usage(body))
    for name in _GATEWAY_FIELDS:
        body.pop(name, None)
    if counted:
        fields.ask_usage(body)
    if replay_output_tokens is not None:
        fields.override(body, fields.replay_fields(replay_output_tokens))
    if rules.cache_salt and form.path in _SALTED:  # before what a client sets, so that it reaches no other tenant's
        body["cache_salt"] = rules.cache_salt + str(body.get("cache_salt") or "")
    if form.fixed is not None:
        body |= form.fixed
    chain = chain_of(form.path, body, rules.tenant) if rules.follow_prompts and not form.prefill_only else NO_CHAIN
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
        chain=chain,
        rest=b"" if size is None else _rest(body, size),
    )


def _of_prompts(form: ApiForm, body: dict[str, Any], rules: CallRules, size: int, prompts: list[Any]) -> Calls:
    """Returns the calls of a body with several prompts, for one answer each. The body is changed."""
    body["prompt"] = prompts[0]
    first = _call(form, body, rules, None)
    calls, root = [first], root_of(body)
    for body["prompt"] in prompts[1:]:
        read = form.read(body)
        chain = chain_of(form.path, body, rules.tenant, root) if rules.follow_prompts else NO_CHAIN
        calls.append(replace(first, text=_head_and_tail(read.texts), prompt_tokens=read.tokens, chain=chain))
    del body["model"], body["prompt"]
    shared = b"," + fields.written(body)[1:] if body else b"}"
    for number, prompt in enumerate(prompts):
        rest = b'"prompt":' + fields.written(prompt)
        _check_growth(len(rest) + len(shared), size)
        calls[number] = replace(calls[number], rest=rest)
    return Calls(prompts=tuple(calls), shared=shared)


def _recognised(calls: Calls) -> Calls:
    """Gives each call its digest."""

    def digest(rest: bytes) -> bytes:
        state = blake2b(rest)
        state.update(calls.shared)
        return state.digest()

    return replace(calls, prompts=tuple(replace(call, digest=digest(call.rest)) for call in calls.prompts))


def _rest(body: dict[str, Any], size: int) -> bytes:
    """Returns the body for an engine, without its opening brace and its model. `size`: that of the client's body."""
    del body["model"]
    written = fields.written(body)
    _check_growth(len(written), size)
    return written[1:]


def _check_growth(written: int, size: int) -> None:
    limit = 2 * size + _SLACK_BYTES
    if written > limit:
        raise InvalidRequest(
            f"the request body has {size} bytes and would have {written} with its numbers written out, more than the "
            f"limit of {limit}: write numbers with an exponent, such as 1e15, in full"
        )


def _parse_object(data: bytes | bytearray) -> dict[str, Any]:
    if len(data) > MAX_CONTAINERS:
        _check_containers(data)
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the request body must be a JSON object")
    return body


def _check_containers(data: bytes | bytearray) -> None:
    """Refuses a body of too many lists and objects. Brackets within texts are counted out only where they matter."""
    if data.count(b"[") + data.count(b"{") <= MAX_CONTAINERS:
        return
    without_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = without_escapes.split(b'"')[::2]
    if sum(part.count(b"[") + part.count(b"{") for part in outside) > MAX_CONTAINERS:
        message = f"the body holds more than {MAX_CONTAINERS} lists and objects: divide it into several requests"
        raise InvalidRequest(message)


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
