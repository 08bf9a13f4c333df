"""Streams of named events: what is relayed and counted, and how they end; the same however the bytes are cut."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.gateway.engines.answer_checks import NO_REASON, Usage
from hmas.gateway.engines.named_sse import NamedSseDecoder
from hmas.gateway.openai.forms import MESSAGE_EVENTS, RESPONSE_EVENTS
from tests.conftest import examples


def named(name: str, end: bytes = b"\n\n", **fields: Any) -> bytes:
    line = end[: len(end) // 2]
    return b"event: %b%bdata: %b%b" % (name.encode(), line, orjson.dumps({"type": name, **fields}), end)


def token(text: str = "a", end: bytes = b"\n\n") -> bytes:
    return named("content_block_delta", end, index=0, delta={"type": "text_delta", "text": text})


START = named("message_start", message={"usage": {"input_tokens": 7, "output_tokens": 0}})
BLOCK = named("content_block_start", index=0, content_block={"type": "text", "text": ""})
DELTA = named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2})
STOP = named("message_stop")
MESSAGE = [START, BLOCK, token("a"), token("error [DONE]"), named("content_block_stop", index=0), DELTA, STOP]
USAGE = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
RESPONSE = [
    named("response.created", response={"status": "in_progress", "error": None}),
    named("response.output_text.delta", delta="a"),
    named("response.function_call_arguments.delta", delta="{"),
    named("response.completed", response={"status": "completed", "error": None, "usage": USAGE}),
]


def run(decoder: NamedSseDecoder, reads: list[bytes]) -> tuple[bytes, int]:
    relayed, tokens = b"", 0
    for read in reads:
        data, count = decoder.feed(read)
        relayed, tokens = relayed + data, tokens + count
    data, count = decoder.close()
    return relayed + data, tokens + count


@pytest.mark.parametrize(
    ("names", "events", "usage"),
    [(MESSAGE_EVENTS, MESSAGE, Usage(7, 2)), (RESPONSE_EVENTS, RESPONSE, Usage(9, 2, 4))],
)
@pytest.mark.parametrize("after", [b"", b"data: [DONE]\n\n"])  # which vLLM writes after some of them
def test_a_stream_is_relayed_counted_and_ended(names: Any, events: list[bytes], usage: Usage, after: bytes) -> None:
    decoder = NamedSseDecoder(names)
    assert run(decoder, [*events, after]) == (b"".join(events), 2)
    assert decoder.done
    assert decoder.error is None
    assert decoder.usage == usage


@settings(max_examples=examples(200))
@given(st.data(), st.sampled_from([MESSAGE, RESPONSE]), st.sampled_from([b"\n\n", b"\r\n\r\n"]))
def test_cuts_do_not_matter(data: st.DataObject, events: list[bytes], end: bytes) -> None:
    text = b"".join(events).replace(b"\n", end[: len(end) // 2])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    reads = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    decoder = NamedSseDecoder(MESSAGE_EVENTS if events is MESSAGE else RESPONSE_EVENTS)
    assert run(decoder, reads) == (text, 2)
    assert decoder.done
    assert decoder.usage is not None


def test_events_without_a_name_are_known_by_their_type() -> None:
    decoder = NamedSseDecoder(MESSAGE_EVENTS)
    events = [b"data: " + each.partition(b"\ndata: ")[2] for each in MESSAGE]
    assert run(decoder, events) == (b"".join(events), 2)
    assert decoder.done


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (named("error", error={"type": "overloaded_error", "message": "full"}), "full"),
        (named("error", code="server_error", message="broke", param=None), "broke"),
        (named("response.failed", response={"status": "failed", "error": {"code": "x", "message": "no"}}), "no"),
    ],
)
def test_an_error_ends_the_stream_and_is_not_relayed(event: bytes, message: str) -> None:
    decoder = NamedSseDecoder(RESPONSE_EVENTS)
    assert run(decoder, [event, STOP]) == (b"", 0)
    assert decoder.error is not None
    assert decoder.error["message"] == message


def test_an_end_is_supplied_only_where_a_reason_was_named() -> None:
    ended, cut = NamedSseDecoder(MESSAGE_EVENTS), NamedSseDecoder(MESSAGE_EVENTS)
    run(ended, MESSAGE[:-1])
    run(cut, MESSAGE[:-2])
    assert (ended.fault(), cut.fault()) == ("", NO_REASON)
    assert ended.missing_end == STOP


def test_what_is_not_in_the_cache_and_what_is_are_the_prompt() -> None:
    decoder = NamedSseDecoder(MESSAGE_EVENTS)
    decoder.feed(
        named("message_start", message={"usage": {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 0}})
    )
    decoder.feed(DELTA)
    assert decoder.usage == Usage(8, 2, 5)


@pytest.mark.parametrize("usage", [{"input_tokens": "x"}, {"input_tokens": -1, "output_tokens": 1}, [], 3])
def test_counts_that_cannot_be_true_are_not_believed(usage: Any) -> None:
    decoder = NamedSseDecoder(MESSAGE_EVENTS)
    decoder.feed(named("message_start", message={"usage": usage}))
    assert decoder.usage is None
