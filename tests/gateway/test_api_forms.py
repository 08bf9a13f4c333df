"""Bodies of every form of the API: what they cost, what the engine gets, and what is refused."""

from typing import Any

import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import API_PATHS, CHAT_PATH
from hmas.gateway.engines.body import run_body
from hmas.gateway.errors import ApiError, ErrorShape, InvalidRequest
from hmas.gateway.openai.body import Call, CallRules, parse_call
from hmas.gateway.openai.forms import FORMS
from hmas.laws.tokens import MESSAGE_OVERHEAD

RULES = CallRules()
WORDS = "abc " * 8  # eight tokens
USER = {"role": "user", "content": WORDS}
TOOL = {
    "name": "look_up",
    "description": WORDS,
    "input_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
}


def parsed(path: str, **fields: Any) -> Call:
    return parse_call(path, orjson.dumps({"model": "m", **fields}), RULES)


def engine_body(call: Call) -> Any:
    return orjson.loads(b"".join(run_body("served", call.rest, None, call.xargs)))


def test_every_path_of_an_engine_that_may_be_asked_for_has_a_form() -> None:
    assert tuple(FORMS) == API_PATHS


@pytest.mark.parametrize(
    ("path", "fields", "tokens", "text"),
    [
        ("/v1/responses", {"input": WORDS}, 8 + MESSAGE_OVERHEAD, WORDS),
        ("/v1/responses", {"input": [USER], "instructions": "abc"}, 9 + 2 * MESSAGE_OVERHEAD, f"abc\n{WORDS}"),
        ("/v1/messages", {"messages": [USER], "max_tokens": 5}, 8 + MESSAGE_OVERHEAD, WORDS),
        (
            "/v1/messages",
            {"messages": [USER], "system": [{"type": "text", "text": WORDS}], "max_tokens": 5},
            16 + 2 * MESSAGE_OVERHEAD,
            f"{WORDS}\n{WORDS}",
        ),
        ("/v1/messages/count_tokens", {"messages": [USER]}, 1, WORDS),
        ("/v1/embeddings", {"input": WORDS}, 8, WORDS),
        ("/v1/embeddings", {"input": [WORDS, WORDS]}, 16, f"{WORDS}\n{WORDS}"),
        ("/v1/embeddings", {"input": [1, 2, 3]}, 3, ""),
        ("/v1/embeddings", {"input": [[1, 2, 3], [4]]}, 4, ""),
        ("/v1/embeddings", {"messages": [USER]}, 8 + MESSAGE_OVERHEAD, WORDS),
        ("/v1/rerank", {"query": WORDS, "documents": [WORDS, {"text": WORDS}]}, 4 * 8, f"{WORDS}\n{WORDS}\n{WORDS}"),
        ("/v1/score", {"text_1": WORDS, "text_2": WORDS}, 16, f"{WORDS}\n{WORDS}"),
        ("/v1/score", {"text_1": [WORDS, "a"], "text_2": [WORDS, "b"]}, 18, f"{WORDS}\na\n{WORDS}\nb"),
        ("/v1/score", {"query": WORDS, "items": [WORDS]}, 16, f"{WORDS}\n{WORDS}"),
        ("/tokenize", {"prompt": WORDS}, 1, WORDS),
        ("/tokenize", {"messages": [USER]}, 1, WORDS),
    ],
)
def test_prompts(path: str, fields: dict[str, Any], tokens: int, text: str) -> None:
    call = parsed(path, **fields)
    assert (call.prompt_tokens, call.text) == (tokens, text)
    body = engine_body(call)
    assert body.pop("model") == "served"
    assert body == fields | ({"store": False} if path == "/v1/responses" else {})


@pytest.mark.parametrize(
    ("path", "fields", "bound"),
    [
        ("/v1/responses", {"input": "x", "max_output_tokens": 9}, 9),
        ("/v1/responses", {"input": "x"}, None),
        ("/v1/messages", {"messages": [USER], "max_tokens": 9}, 9),
        ("/v1/embeddings", {"input": "x", "max_tokens": 9, "stream": True}, 0),
        ("/v1/rerank", {"query": "x", "documents": ["y"]}, 0),
        ("/tokenize", {"prompt": "x"}, 0),
    ],
)
def test_what_generates_nothing_is_bounded_by_no_token(path: str, fields: dict[str, Any], bound: int | None) -> None:
    call = parsed(path, **fields)
    assert call.max_tokens == bound
    assert not call.stream


def test_tools_their_calls_and_their_results_cost_tokens() -> None:
    plain = parsed("/v1/messages", messages=[USER], max_tokens=5).prompt_tokens
    with_tool = parsed("/v1/messages", messages=[USER], max_tokens=5, tools=[TOOL]).prompt_tokens
    assert 8 + 15 < with_tool - plain < 60
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "x" * 99, "function": {"arguments": WORDS}}]}
    assert 8 < parsed(CHAT_PATH, messages=[called]).prompt_tokens < 24
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "y" * 99, "content": WORDS}]}
    assert 8 < parsed("/v1/messages", messages=[result], max_tokens=5).prompt_tokens < 28
    output = {"type": "function_call_output", "call_id": "z" * 99, "output": WORDS}
    assert 8 < parsed("/v1/responses", input=[output]).prompt_tokens < 28


def test_deep_schemas_are_counted_without_recursion() -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = {"a": [deep]}
    assert parsed(CHAT_PATH, messages=[USER], tools=[deep]).prompt_tokens > 100


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/responses", {}, "input"),
        ("/v1/responses", {"input": []}, "input"),
        ("/v1/responses", {"input": ["x"]}, "input"),
        ("/v1/responses", {"input": "x", "instructions": 3}, "instructions"),
        ("/v1/responses", {"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ("/v1/responses", {"input": "x", "background": True}, "background"),
        ("/v1/responses", {"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ("/v1/responses", {"input": "x", "hmas_replay": {"output_tokens": 3}}, "hmas_replay"),
        ("/v1/messages", {"messages": []}, "messages"),
        ("/v1/messages", {"messages": [USER], "system": 3}, "system"),
        ("/v1/messages", {"messages": [USER], "cache_salt": "x"}, "cache_salt"),
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": [3, "x"]}, "input"),
        ("/v1/embeddings", {"input": [[]]}, "input"),
        ("/v1/embeddings", {"input": ["x"] * 5000}, "input"),
        ("/v1/embeddings", {"input": "x", "encoding_format": "bytes"}, "encoding_format"),
        ("/v1/rerank", {"query": "x"}, "documents"),
        ("/v1/rerank", {"query": "x", "documents": "y"}, "documents"),
        ("/v1/rerank", {"documents": ["y"]}, "query"),
        ("/v1/rerank", {"query": [1], "documents": ["y"]}, "query"),
        ("/v1/score", {"text_1": "x"}, "text_2"),
        ("/tokenize", {}, "prompt"),
        (CHAT_PATH, {"messages": [USER], "service_tier": "gold"}, "service_tier"),
        (CHAT_PATH, {"messages": [USER], "service_tier": ["flex"]}, "service_tier"),
    ],
)
def test_wrong_fields_are_named(path: str, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(path, **fields)
    assert (caught.value.error.param, caught.value.error.status) == (param, 400)


@pytest.mark.parametrize(
    ("name", "tier"), [("flex", "flex"), ("priority", "priority"), ("auto", "default"), (None, None)]
)
def test_service_tiers(name: str | None, tier: str | None) -> None:
    assert parsed(CHAT_PATH, messages=[USER], service_tier=name).tier == tier


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.INVALID_REQUEST, "invalid_request_error"),
        (Outcome.UNAUTHENTICATED, "authentication_error"),
        (Outcome.UNKNOWN_PATH, "not_found_error"),
        (Outcome.POOL_QUEUE_FULL, "rate_limit_error"),
        (Outcome.ENGINE_ERROR, "api_error"),
    ],
)
def test_errors_in_anthropics_shape(outcome: Outcome, kind: str) -> None:
    error = ApiError.of(outcome, "it is so", retry_after_s=2.5)
    told = orjson.loads(error.body(ErrorShape.ANTHROPIC))
    assert told["type"] == "error"
    assert (told["error"]["type"], told["error"]["message"], told["error"]["reason"]) == (
        kind,
        "it is so",
        outcome.value,
    )
    assert error.events(ErrorShape.ANTHROPIC) == b"event: error\ndata: " + orjson.dumps(told) + b"\n\n"


def test_an_error_in_a_stream_of_the_responses_api() -> None:
    event = ApiError.of(Outcome.ENGINE_ERROR, "broke").events(ErrorShape.RESPONSES)
    name, _, data = event.partition(b"\ndata: ")
    assert name == b"event: error"
    told = orjson.loads(data)
    assert (told["type"], told["message"], told["error"]["message"]) == ("error", "broke", "broke")
