"""Counting tokens of a stream, wherever chunk borders fall."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas_loadgen.runner.meter import StreamEnd, StreamMeter


def chat(text: str | None, finish: str | None = None, role: str | None = None) -> str:
    delta = ({"role": role} if role else {}) | ({"content": text} if text is not None else {})
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + "\n\n"


def usage(tokens: int) -> str:
    return "data: " + json.dumps({"choices": [], "usage": {"completion_tokens": tokens}}) + "\n\n"


DONE = "data: [DONE]\n\n"


def measure(*timed: tuple[float, str]) -> StreamEnd:
    meter = StreamMeter()
    for at_s, text in timed:
        meter.feed(at_s, text.encode())
    return meter.end()


def test_a_vllm_chat_stream() -> None:
    end = measure(
        (1.0, chat("", role="assistant")),
        (1.1, chat("Hel")),
        (1.2, chat("lo")),
        (1.3, chat("!", "stop")),
        (1.35, usage(3)),
        (1.4, DONE),
    )
    assert end == StreamEnd(output_tokens=3, times_s=(1.1, 1.2, 1.3), complete=True)


def test_a_finish_event_without_text_is_no_token() -> None:
    end = measure((0.0, chat("a")), (1.0, chat("b")), (2.0, chat("", "stop")), (2.0, DONE))
    assert end == StreamEnd(output_tokens=2, times_s=(0.0, 1.0), complete=True)


def test_an_end_of_sequence_token_counts_when_usage_says_so() -> None:
    end = measure((0.0, chat("a")), (1.0, chat("", "stop")), (1.0, usage(2) + DONE))
    assert end == StreamEnd(output_tokens=2, times_s=(0.0, 1.0), complete=True)


def test_several_tokens_in_one_event() -> None:
    end = measure((0.0, chat("ab")), (1.0, chat("cd", "length")), (1.0, usage(8)), (1.0, DONE))
    assert end == StreamEnd(output_tokens=8, times_s=(0.0, 1.0), complete=True)


def test_comments_are_no_events() -> None:
    end = measure((0.0, ": queued\n\n"), (5.0, ": queued\n\n"), (6.0, chat("a")), (7.0, chat("b", "stop") + DONE))
    assert end.times_s == (6.0, 7.0)


def test_completions_reasoning_and_tool_calls_are_tokens() -> None:
    completion = 'data: {"choices":[{"index":0,"text":" x","finish_reason":null}]}\n\n'
    reasoning = 'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
    tool = 'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n'
    for event in (completion, reasoning, tool):
        end = measure((1.0, chat(None, role="assistant")), (2.0, event), (3.0, event + DONE))
        assert end == StreamEnd(output_tokens=2, times_s=(2.0, 3.0), complete=True)


def test_text_that_looks_like_an_event_is_not_one() -> None:
    end = measure((0.0, chat("data: x\n\ndata: y")), (1.0, chat("z", "stop") + DONE))
    assert end.output_tokens == 2


def test_an_error_in_the_stream() -> None:
    error = 'data: {"error":{"message":"engine is gone","type":"api_error","code":"engine_error"}}\n\n'
    end = measure((0.0, chat("a")), (1.0, error + DONE))
    assert end == StreamEnd(
        output_tokens=1, times_s=(0.0,), complete=False, error_code="engine_error", error_message="engine is gone"
    )


@pytest.mark.parametrize("text", ["", ": queued\n\n", "garbage", "data: {broken\n\n", "data: [1]\n\n"])
def test_streams_with_nothing_in_them(text: str) -> None:
    end = measure((0.0, text))
    assert not end.complete
    assert end.output_tokens <= 1


def test_a_stream_that_breaks_off_is_not_complete() -> None:
    assert measure((0.0, chat("a")), (1.0, chat("b"))) == StreamEnd(output_tokens=2, times_s=(0.0, 1.0), complete=False)


def test_a_done_without_a_token() -> None:
    assert measure((0.0, DONE)) == StreamEnd(output_tokens=0, times_s=(), complete=True)


@given(st.integers(1, 40), st.booleans(), st.data())
def test_chunk_borders_do_not_matter(tokens: int, crlf: bool, data: st.DataObject) -> None:
    events = chat("", role="assistant") + "".join(chat(f"w{i}") for i in range(tokens - 1)) + chat("e", "length")
    stream = (events + usage(tokens) + DONE).replace("\n", "\r\n" if crlf else "\n").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=60)))
    meter = StreamMeter()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        meter.feed(1.0, stream[start:end])
    assert meter.end() == StreamEnd(output_tokens=tokens, times_s=(1.0,) * tokens, complete=True)
