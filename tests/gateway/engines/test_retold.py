"""Where KV lies reaches no client, and what was cached of a prompt is told as the engine said that computed it."""

from typing import Any

import orjson
import pytest

from hmas.gateway.engines.named_sse import NamedSseDecoder
from hmas.gateway.engines.replies import plain_end
from hmas.gateway.engines.sse import SseDecoder
from hmas.gateway.openai.forms import FORMS

PARAMS = {"remote_host": "10.0.0.1", "remote_port": 5601}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}
ANSWERS: dict[str, dict[str, Any]] = {
    CHAT: {"choices": [CHOICE], "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102}},
    RESPONSES: {
        "output": [], "status": "completed",
        "usage": {"input_tokens": 100, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 0, "other": 1}},
    },
    MESSAGES: {
        "content": [], "stop_reason": "end_turn",
        "usage": {"input_tokens": 90, "output_tokens": 2, "cache_read_input_tokens": 10},
    },
}  # fmt: skip
TOLD: dict[str, dict[str, Any]] = {
    CHAT: ANSWERS[CHAT]["usage"] | {"prompt_tokens_details": {"cached_tokens": 64}},
    RESPONSES: {"input_tokens": 100, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 64, "other": 1}},
    MESSAGES: {"input_tokens": 36, "output_tokens": 2, "cache_read_input_tokens": 64},
}  # fmt: skip


@pytest.mark.parametrize("path", ANSWERS)
def test_a_whole_answer(path: str) -> None:
    body = orjson.dumps(ANSWERS[path] | {"kv_transfer_params": PARAMS})
    end = plain_end(body, FORMS[path], None, 64)
    assert orjson.loads(end.data) == ANSWERS[path] | {"usage": TOLD[path], "kv_transfer_params": None}
    assert (end.usage.prompt_tokens, end.usage.cached_tokens) == (100, 64)


@pytest.mark.parametrize("path", ANSWERS)
def test_an_answer_about_which_nothing_is_to_be_said_keeps_its_bytes(path: str) -> None:
    body = b" " + orjson.dumps(ANSWERS[path] | {"kv_transfer_params": None})
    assert plain_end(body, FORMS[path]).data is body


@pytest.mark.parametrize("cached", [101, 0])
def test_more_than_the_prompt_was_not_cached_and_what_is_said_already_is_not_said_again(cached: int) -> None:
    answer = ANSWERS[CHAT] | {"usage": TOLD[CHAT] | {"prompt_tokens_details": {"cached_tokens": 0}}}
    body = orjson.dumps(answer)
    assert plain_end(body, FORMS[CHAT], None, cached).data is body


def test_a_stream_of_chunks() -> None:
    decoder = SseDecoder(strip_usage=False)
    decoder.prompt_cached = 64
    first = b'data: {"choices":[{"index":0,"delta":{"content":"yes"}}]}\n\n'
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "kv_transfer_params": PARAMS}
    usage = {"choices": [], "usage": ANSWERS[CHAT]["usage"]}
    events = [first, *(b"data: " + orjson.dumps(each) + b"\n\n" for each in (last, usage)), b"data: [DONE]\n\n"]
    relayed = [decoder.feed(event)[0] for event in events]
    assert (relayed[0], relayed[3]) == (events[0], events[3])
    assert [orjson.loads(each[6:]) for each in relayed[1:3]] == [
        last | {"kv_transfer_params": None}, usage | {"usage": TOLD[CHAT]}
    ]  # fmt: skip
    assert decoder.usage is not None
    assert decoder.usage.cached_tokens == 64


@pytest.mark.parametrize(("path", "name", "inner"), [
    (RESPONSES, "response.completed", "response"), (MESSAGES, "message_start", "message"),
])  # fmt: skip
def test_a_stream_of_named_events(path: str, name: str, inner: str) -> None:
    names = FORMS[path].events
    assert names is not None
    decoder = NamedSseDecoder(names)
    decoder.prompt_cached = 64
    document = {"type": name, inner: ANSWERS[path] | {"kv_transfer_params": PARAMS}}
    relayed, _ = decoder.feed(f"event: {name}\n".encode() + b"data: " + orjson.dumps(document) + b"\n\n")
    head, _, data = relayed.rstrip(b"\n").partition(b"\ndata: ")
    assert head == f"event: {name}".encode()
    assert orjson.loads(data)[inner] == ANSWERS[path] | {"usage": TOLD[path], "kv_transfer_params": None}
    assert relayed.endswith(b"\n\n")
