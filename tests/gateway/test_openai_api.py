import json
from typing import Any

import orjson
import pytest

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.gateway.engines.body import run_body
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai.body import PERCEIVED_CHARS, Call, CallRules, parse_call, parse_calls
from hmas.gateway.openai.steering import STEERING_FIELDS
from hmas.gateway.reception import request_of
from hmas.gateway.tenants.terms import Tenant, terms_of

MESSAGES = [{"role": "user", "content": "Hello there"}]


RULES = CallRules()
OPEN = CallRules(replay_enabled=True, allowed_fields=frozenset(STEERING_FIELDS))


def chat(**fields: Any) -> Call:
    return parse_call(CHAT_PATH, orjson.dumps({"model": "m", "messages": MESSAGES} | fields), OPEN)


def completion(**fields: Any) -> Call:
    return parse_call(COMPLETIONS_PATH, orjson.dumps({"model": "m", "prompt": "Hello"} | fields), RULES)


def engine_body(call: Call) -> Any:
    return orjson.loads(b"".join(run_body("served", call.rest, None, call.xargs, call.seed)))


def test_unknown_fields_pass_through_and_the_model_is_resolved() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = chat(tools=tools, response_format={"type": "json_object"}, vllm_xargs={"a": 1})
    assert engine_body(call) == {
        "model": "served", "messages": MESSAGES, "tools": tools, "response_format": {"type": "json_object"},
        "vllm_xargs": {"a": 1},
    }  # fmt: skip


def test_the_gateways_own_fields_do_not_reach_the_engine() -> None:
    call = chat(priority=-3, hmas_replay={"output_tokens": 17}, request_id="x", rid="y")
    assert engine_body(call) == {
        "model": "served", "messages": MESSAGES, "max_tokens": 17, "min_tokens": 17, "ignore_eos": True
    }  # fmt: skip
    assert (call.priority, call.max_tokens) == (-3, None)


@pytest.mark.parametrize(
    ("fields", "strip", "options"),
    [
        ({}, False, None),
        ({"stream": True}, True, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, True, {"include_usage": True}),
        ({"stream": True, "stream_options": {"include_usage": True}}, False, {"include_usage": True}),
        ({"stream": True, "stream_options": {"include_usage": False, "x": 1}}, True, {"include_usage": True, "x": 1}),
        ({"stream": False, "stream_options": {"x": 1}}, False, {"x": 1}),
    ],
)
def test_usage_is_asked_for_and_stripped_if_the_client_did_not_ask(fields: Any, strip: bool, options: Any) -> None:
    call = chat(**fields)
    assert call.strip_usage is strip
    assert engine_body(call).get("stream_options") == options


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
        ({"max_completion_tokens": None, "max_tokens": 5}, 5),
    ],
)
def test_the_clients_bound_on_tokens(fields: Any, bound: int | None) -> None:
    assert chat(**fields).max_tokens == bound


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("aaa bbb ccc", 3), (["aaa bbb"], 2), ([1, 2, 3, 4], 4), ([[1, 2, 3]], 3)],
)
def test_prompts_of_completions(prompt: Any, tokens: int) -> None:
    call = completion(prompt=prompt)
    assert call.prompt_tokens == tokens
    assert engine_body(call)["prompt"] == prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [*MESSAGES, {"content": "x"}]}, "messages[1].role"),
        ({"messages": [{"role": 3, "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": "m" * 300}, "model"),
        ({"n": 33}, "n"),
        ({"n": 0}, "n"),
        ({"n": "1"}, "n"),
        ({"n": True}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"max_tokens": 2**40}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": "x"}}, "include_usage"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": []}, "top_p"),
        ({"priority": 1.5}, "priority"),
        ({"priority": 2**40}, "priority"),
        ({"hmas_replay": 3}, "hmas_replay"),
        ({"hmas_replay": {"output_tokens": 0}}, "hmas_replay"),
    ],
)
def test_wrong_chat_fields_name_the_field(fields: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**fields)
    assert caught.value.error.param == param
    assert caught.value.error.status == 400


def divided(path: str, **fields: Any) -> tuple[list[Any], int, bool]:
    calls = parse_calls(path, orjson.dumps({"model": "m"} | fields), OPEN)
    return [engine_body(call) for call in calls.each()], calls.answers, calls.usage


def test_several_answers_are_requests_of_their_own_each_with_its_seed() -> None:
    bodies, answers, usage = divided(CHAT_PATH, messages=MESSAGES, n=3, seed=7, top_p=0.5)
    assert bodies == [{"model": "served", "messages": MESSAGES, "top_p": 0.5, "seed": seed} for seed in (7, 8, 9)]
    assert (answers, usage) == (3, False)
    assert divided(CHAT_PATH, messages=MESSAGES, n=1) == ([{"model": "served", "messages": MESSAGES, "n": 1}], 1, False)


def test_several_prompts_are_requests_of_their_own() -> None:
    bodies, answers, _ = divided(COMPLETIONS_PATH, prompt=["a", [1, 2]], n=2, best_of=2)
    assert bodies == [{"model": "served", "prompt": p} for p in ("a", "a", [1, 2], [1, 2])]
    assert answers == 2


def test_the_parts_of_a_stream_tell_their_usage_for_the_sum() -> None:
    bodies, _, usage = divided(CHAT_PATH, messages=MESSAGES, n=2, stream=True, stream_options={"include_usage": True})
    assert [body["stream_options"] for body in bodies] == [{"include_usage": True}] * 2
    assert usage
    assert not divided(CHAT_PATH, messages=MESSAGES, n=2, stream=True)[2]


def test_too_many_answers_are_refused() -> None:
    for fields in ({"prompt": ["a"] * 33}, {"prompt": ["a"] * 17, "n": 2}):
        with pytest.raises(InvalidRequest, match="at most 32"):
            parse_calls(COMPLETIONS_PATH, orjson.dumps({"model": "m"} | fields), RULES)


@pytest.mark.parametrize("prompt", [None, [], {}, 3, ["a", 1], [1, "a"], ["a", []], [[]], [[True]]])
def test_wrong_prompts(prompt: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        divided(COMPLETIONS_PATH, prompt=prompt)
    assert caught.value.error.param == "prompt"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"model": NaN}', b"\xff\xfe", b'{"model":"\\ud800"}', b"[" * 100_000],
)
def test_bodies_that_are_not_a_json_object(data: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_call(CHAT_PATH, data, RULES)
    assert caught.value.error.status == 400


def test_replay_is_refused_unless_enabled() -> None:
    with pytest.raises(InvalidRequest, match="HMAS_REPLAY_FIELD"):
        completion(hmas_replay={"output_tokens": 3})


def test_a_field_given_twice_reaches_the_engine_once() -> None:
    call = parse_call(CHAT_PATH, b'{"model":"m","n":4,"messages":[{"role":"user"}],"n":1}', RULES)
    assert call.rest.count(b'"n"') == 1


def test_perception_sees_head_and_tail() -> None:
    short = chat(messages=[{"role": "system", "content": "Be kind"}, {"role": "user", "content": [{"text": "Hi"}]}])
    assert short.text == "Be kind\nHi"
    messages = [{"role": "user", "content": "a" * 9000}, {"role": "tool"}, {"role": "user", "content": "z" * 100}]
    text = chat(messages=messages).text
    assert text.startswith("aaaa")
    assert text.endswith("a\n\n" + "z" * 100)
    assert len(text) <= PERCEIVED_CHARS + 1
    assert len(completion(prompt="x" * 10**6).text) <= PERCEIVED_CHARS + 1
    assert completion(prompt=[1, 2]).text == ""


def test_the_request_carries_tenant_terms_and_no_true_length() -> None:
    tenant = Tenant(name="acme", weight=2.0, priority_ceiling=-1, relegate=False)
    terms = terms_of({}, tenant, -5, stream=False)
    with_replay = request_of(chat(priority=-5, hmas_replay={"output_tokens": 9}), "r1", tenant, terms, 4.0)
    without = request_of(chat(priority=-5), "r1", tenant, terms, 4.0)
    assert with_replay == without
    assert (without.tenant, without.weight, without.priority, without.relegate) == ("acme", 2.0, -1, False)
    assert (without.arrival_s, without.slo.whole, without.slo_stated) == (4.0, True, False)


@pytest.mark.parametrize("name", STEERING_FIELDS)
def test_fields_that_steer_an_engine_are_refused_unless_allowed(name: str) -> None:
    value: Any = {"remote_host": "evil"} if name == "vllm_xargs" else "evil"
    with pytest.raises(InvalidRequest, match="allowed_body_fields") as caught:
        completion(**{name: value})
    assert (caught.value.error.status, caught.value.error.param) == (400, name)
    assert engine_body(chat(**{name: value}))[name] == value
    assert engine_body(completion(**{name: None})).get(name) is None


def test_a_clients_extra_arguments_are_bounded_and_not_the_meshs_own() -> None:
    call = chat(vllm_xargs={"mine": 1, "hmas_urgency": -1e9, "hmas_tpot_ms": 1})
    assert engine_body(call)["vllm_xargs"] == {"mine": 1}
    deep: Any = 1
    for _ in range(300):
        deep = {"x": deep}
    for xargs in ("odd", {"x": "y" * 5000}, {"x": deep}):
        with pytest.raises(InvalidRequest):
            parse_call(CHAT_PATH, json.dumps({"model": "m", "messages": MESSAGES, "vllm_xargs": xargs}).encode(), OPEN)


def test_numbers_that_grow_when_written_are_refused() -> None:
    data = b'{"model":"m","messages":[{"role":"user"}],"x":[' + b"1e15," * 10_000 + b"0]}"
    with pytest.raises(InvalidRequest, match="written out"):
        parse_call(CHAT_PATH, data, RULES)
