"""The SSE decoder: what is relayed, counted, stripped; the same however the bytes are cut."""

from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.gateway.engines import sse
from hmas.gateway.engines.answer_checks import Usage
from hmas.gateway.engines.sse import SseDecoder
from tests.conftest import examples


def event(document: object, end: bytes = b"\n\n") -> bytes:
    return b"data: " + (document if isinstance(document, bytes) else orjson.dumps(document)) + end


def chat(content: str | None = None, **delta: object) -> dict[str, object]:
    fields = {**({"content": content} if content is not None else {}), **delta}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields}]}


ROLE = event(chat("", role="assistant"))
USAGE_CHUNK = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
DONE = b"data: [DONE]\n\n"
LAST = event({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]})


def run(decoder: SseDecoder, reads: list[bytes]) -> tuple[bytes, int]:
    relayed, tokens = b"", 0
    for read in reads:
        data, count = decoder.feed(read)
        relayed, tokens = relayed + data, tokens + count
    data, count = decoder.close()
    return relayed + data, tokens + count


def test_the_role_chunk_is_relayed_but_is_no_token() -> None:
    decoder = SseDecoder(strip_usage=False)
    assert decoder.feed(ROLE) == (ROLE, 0)
    assert decoder.feed(event(chat("a"))) == (event(chat("a")), 1)


@pytest.mark.parametrize(
    "chunk",
    [
        chat("a", role="assistant"),  # servers that repeat the role
        chat(reasoning_content="hm"),
        chat(tool_calls=[{"index": 0}]),
        chat(""),  # part of a character
        {"choices": [{"index": 0, "text": "a"}]},
    ],
)
def test_a_generated_chunk_is_a_token(chunk: dict[str, object]) -> None:
    assert SseDecoder(strip_usage=False).feed(event(chunk))[1] == 1


@pytest.mark.parametrize("strip", [True, False])
def test_usage_is_read_and_dropped_only_if_it_was_injected(strip: bool) -> None:
    decoder = SseDecoder(strip_usage=strip)
    stream = LAST + event(USAGE_CHUNK) + DONE
    relayed, tokens = run(decoder, [stream])
    assert (decoder.usage, tokens, decoder.done) == (Usage(7, 3), 1, True)
    assert (b"usage" in relayed) is not strip
    assert relayed.endswith(DONE)


def test_an_error_event_ends_the_stream_and_is_not_relayed() -> None:
    decoder = SseDecoder(strip_usage=True)
    relayed, tokens = run(decoder, [event(chat("a")) + event({"error": {"message": "no", "code": 500}}) + DONE])
    assert (relayed, tokens) == (event(chat("a")), 1)
    assert decoder.error == {"message": "no", "code": 500}


def test_an_error_beside_choices_ends_the_stream_too() -> None:
    decoder = SseDecoder(strip_usage=False)
    decoder.feed(event(chat("a")))
    assert decoder.feed(event({**chat("b"), "error": {"message": "lost"}})) == (b"", 0)
    assert decoder.error == {"message": "lost"}


def test_content_that_looks_special_is_content() -> None:
    decoder = SseDecoder(strip_usage=True)
    stream = ROLE + b"".join(event(chat(text)) for text in ("a", "[DONE]", '"error"', 'data: x\n\n"choices":[]'))
    assert run(decoder, [stream]) == (stream, 4)
    assert (decoder.done, decoder.error) == (False, None)


def test_comments_are_relayed_and_not_counted() -> None:
    decoder = SseDecoder(strip_usage=True)
    stream = event(chat("a")) + b": ping\n\n" + event(chat("b"))
    assert run(decoder, [stream]) == (stream, 2)


def test_an_unfinished_last_event_is_completed() -> None:
    decoder = SseDecoder(strip_usage=True)
    assert run(decoder, [LAST, b"data: [DONE]\n"]) == (LAST + DONE, 1)
    assert decoder.done


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(ValueError, match="more than 100 bytes"):
        SseDecoder(strip_usage=True).feed(b"data: " + b"x" * 200)


EVENTS = st.one_of(
    st.text(max_size=12).map(lambda text: event(chat(text))),
    st.sampled_from(
        [
            ROLE,
            event(USAGE_CHUNK),
            b": ping\n\n",
            b"event: x\ndata: {}\n\n",
            event(b"not json"),
            event(chat("[DONE]")),
            LAST,
            LAST.replace(b"stop", b"abort"),
            LAST.replace(b":", b": "),
            event(chat('"finish_reason":"abort"')),
        ]
    ),
)


@settings(max_examples=examples(300))
@given(
    events=st.lists(EVENTS, max_size=12),
    ending=st.sampled_from([b"", DONE, event({"error": {"message": "x"}}), DONE + event(chat("late"))]),
    cuts=st.lists(st.integers(0, 2000), max_size=12),
    crlf=st.booleans(),
    strip=st.booleans(),
)
def test_the_result_does_not_depend_on_the_reads(
    events: list[bytes], ending: bytes, cuts: list[int], crlf: bool, strip: bool
) -> None:
    stream = b"".join(events) + ending
    if crlf:
        stream = stream.replace(b"\n", b"\r\n")
    edges = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    reads = [stream[a:b] for a, b in pairwise(edges)]
    whole, cut, single = (SseDecoder(strip_usage=strip) for _ in range(3))
    expected = run(whole, [stream])
    assert run(cut, reads) == expected
    assert run(single, [stream[i : i + 1] for i in range(len(stream))]) == expected
    state = (whole.done, whole.error, whole.usage, whole.fault())
    assert (cut.done, cut.error, cut.usage, cut.fault()) == state
    assert (single.done, single.error, single.usage, single.fault()) == state
