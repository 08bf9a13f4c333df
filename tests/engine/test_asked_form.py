"""An answer has the form that its request asks for, as vLLM's has: calls of tools, JSON, log probabilities."""

import json
from math import exp
from typing import Any

import orjson
import pytest

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.engine.answer import AnswerText
from hmas.engine.api import ApiReader, BadRequest, Generation
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits
from hmas.engine.formed_answer import FormedAnswer, chat_or_completion

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, num_gpu_blocks=256, max_model_len=2048)
READER = ApiReader("m", LIMITS, OutputLength(median=5, sigma=0.5))
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
SCHEMA = {"type": "object", "properties": {"answer": {"enum": ["yes", "perhaps"]}}, "required": ["answer"]}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}


def read(path: str = CHAT_PATH, **fields: Any) -> Generation | BadRequest:
    prompt = {"prompt": "x"} if path == COMPLETIONS_PATH else {"messages": [{"role": "user", "content": "x"}]}
    return READER.read(orjson.dumps({"model": "m", **prompt, **fields}), path)


def answer(path: str = CHAT_PATH, **fields: Any) -> AnswerText:
    generation = read(path, **fields)
    assert isinstance(generation, Generation), generation
    return chat_or_completion(generation, "chatcmpl-7", "m", 0)


def whole(path: str = CHAT_PATH, **fields: Any) -> Any:
    return json.loads(answer(path, **fields).whole())["choices"][0]


def streamed(path: str = CHAT_PATH, **fields: Any) -> list[Any]:
    """The choices of a stream's chunks."""
    generation = read(path, stream=True, **fields)
    assert isinstance(generation, Generation)
    text = chat_or_completion(generation, "chatcmpl-7", "m", 0)
    last = generation.output_tokens - 1
    data = text.role_event() + b"".join(map(text.event, range(last))) + text.last_events(last)
    lines = data.decode().split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]


def test_a_required_call_fits_the_first_tool() -> None:
    choice = whole(tools=[WEATHER, CLOCK], tool_choice="required")
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == ""
    assert (call["id"], call["type"], call["function"]["name"]) == ("chatcmpl-tool-7", "function", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": ""}


def test_a_named_tool_is_called() -> None:
    choice = whole(tools=[WEATHER, CLOCK], tool_choice={"type": "function", "function": {"name": "clock"}})
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("tool_choice", ["auto", "none", None])
def test_a_tool_that_need_not_be_called_is_not(tool_choice: str | None) -> None:
    choice = whole(tools=[WEATHER], tool_choice=tool_choice, max_tokens=3)
    assert choice["message"]["tool_calls"] == []
    assert choice["message"]["content"]


def test_a_streamed_call_comes_in_pieces() -> None:
    chunks = streamed(tools=[WEATHER], tool_choice="required")
    calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", [])]
    assert len(calls) > 1
    assert calls[0]["function"]["name"] == "weather"
    assert [call.get("id") for call in calls] == ["chatcmpl-tool-7", *[None] * (len(calls) - 1)]
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": ""}
    assert [chunk["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETIONS_PATH])
def test_json_that_fits_the_schema(path: str) -> None:
    choice = whole(path, response_format=JSON_SCHEMA, ignore_eos=True)
    text = choice["text"] if path == COMPLETIONS_PATH else choice["message"]["content"]
    assert json.loads(text) == {"answer": "yes"}
    assert choice["finish_reason"] == "stop"
    pieces = [c["text"] if path == COMPLETIONS_PATH else c["delta"].get("content", "") for c in
              streamed(path, response_format=JSON_SCHEMA)]  # fmt: skip
    assert "".join(pieces) == text
    assert json.loads(whole(response_format={"type": "json_object"})["message"]["content"]) == {}
    assert not isinstance(answer(response_format={"type": "text"}), FormedAnswer)


def test_json_is_cut_off_at_the_limit() -> None:
    choice = whole(response_format=JSON_SCHEMA, max_tokens=2)
    assert choice["message"]["content"] == '{"answer'
    assert choice["finish_reason"] == "length"
    cut = whole(tools=[WEATHER], tool_choice="required", max_tokens=1)
    assert cut["finish_reason"] == "length"


def test_log_probabilities_of_a_chat() -> None:
    choice = whole(logprobs=True, top_logprobs=3, max_tokens=4, ignore_eos=True)
    told = choice["logprobs"]["content"]
    assert "".join(each["token"] for each in told) == choice["message"]["content"]
    for each in told:
        assert bytes(each["bytes"]).decode() == each["token"]
        assert each["top_logprobs"][0]["token"] == each["token"]
        assert len({top["token"] for top in each["top_logprobs"]}) == 3
        assert sum(exp(top["logprob"]) for top in each["top_logprobs"]) < 1.0
    assert whole(logprobs=True, max_tokens=1)["logprobs"]["content"][0]["top_logprobs"] == []
    chunks = streamed(logprobs=True, top_logprobs=20, max_tokens=4, ignore_eos=True)[1:]
    assert [len(chunk["logprobs"]["content"]) for chunk in chunks] == [1, 1, 1, 1]
    assert [chunk["logprobs"]["content"][0]["token"] for chunk in chunks] == [each["token"] for each in told]
    assert len(chunks[0]["logprobs"]["content"][0]["top_logprobs"]) == 20
    assert sum(exp(top["logprob"]) for top in chunks[0]["logprobs"]["content"][0]["top_logprobs"]) < 1.0
    assert whole(max_tokens=1)["logprobs"] is None


def test_log_probabilities_of_a_completion() -> None:
    choice = whole(COMPLETIONS_PATH, logprobs=2, max_tokens=3, ignore_eos=True)
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"]
    assert told["text_offset"] == [choice["text"].index(token) for token in told["tokens"]]
    assert [len(top) for top in told["top_logprobs"]] == [2, 2, 2]
    chunks = streamed(COMPLETIONS_PATH, logprobs=0, max_tokens=3, ignore_eos=True)
    assert [chunk["logprobs"]["text_offset"] for chunk in chunks] == [[offset] for offset in told["text_offset"]]
    assert [list(chunk["logprobs"]["top_logprobs"][0]) for chunk in chunks] == [[token] for token in told["tokens"]]


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"tool_choice": "required"}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": "required", "tools": []}, "tool_choice", "`tools` must be set"),
        ({"tool_choice": "required", "tools": [1]}, "tools", "each tool must be a function"),
        ({"tool_choice": "required", "tools": [CLOCK, CLOCK]}, "tools", "a name of its own"),
        ({"tool_choice": "any", "tools": [CLOCK]}, "tool_choice", "does not match any"),
        ({"tool_choice": {"function": {"name": "x"}}, "tools": [CLOCK]}, "tool_choice", "does not match any"),
        ({"response_format": {"type": "xml"}}, "response_format", "text, json_object or json_schema"),
        ({"response_format": "json"}, "response_format", "text, json_object or json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "must be a JSON schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"pattern": "a"}}}},
            "response_format",
            "cannot answer this schema: /: the emulated engine does not know the keyword `pattern`",
        ),
        ({"top_logprobs": 2}, "top_logprobs", "`logprobs` must be set to true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"logprobs": True, "top_logprobs": "x"}, "top_logprobs", "from 0 to 20"),
    ],
)
def test_what_it_cannot_do_is_a_clear_400(fields: dict[str, Any], param: str, message: str) -> None:
    refused = read(**fields)
    assert isinstance(refused, BadRequest)
    assert (refused.status, refused.param) == (400, param)
    assert message in refused.message
