"""What is believed of an engine's answer: why it ended, its counts and choices, in each form, whole and streamed."""

import json
import math
from collections.abc import Mapping
from copy import deepcopy
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.outcome import Outcome
from hmas.gateway.api_form import ApiForm
from hmas.gateway.engines.answer_checks import NO_USAGE, Usage, usage_of
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.openai.merging import AnswerMerger
from hmas.laws.figures import MAX_TEXT, MOST_TOKENS
from tests.conftest import examples

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
MAX_TOKENS = 8
COUNTS = {
    "prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11, "prompt_tokens_details": {"cached_tokens": 4},
}  # fmt: skip
NAMED = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11, "input_tokens_details": {"cached_tokens": 4}}
ANTHROPIC = {"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": 4}
PREFILL = {"prompt_tokens": 9, "total_tokens": 9}
RESPONSE = {"id": "r", "status": "completed", "error": None, "output": [{"type": "message"}], "usage": NAMED}
WHOLE: Mapping[str, Any] = {
    CHAT: {
        "id": "c", "choices": [{"index": 0, "message": {"content": "ab"}, "finish_reason": "stop"}], "usage": COUNTS,
    },
    "/v1/completions": {"id": "c", "choices": [{"index": 0, "text": "ab", "finish_reason": "length"}], "usage": COUNTS},
    RESPONSES: RESPONSE,
    MESSAGES: {
        "id": "m", "content": [{"type": "text", "text": "ab"}], "stop_reason": "end_turn", "usage": ANTHROPIC,
    },
    "/v1/messages/count_tokens": {"input_tokens": 9},
    "/v1/embeddings": {"data": [{"index": 0, "embedding": [0.5]}], "usage": PREFILL},
    "/v1/rerank": {"results": [{"index": 0, "relevance_score": 0.5}], "usage": PREFILL},
    "/v1/score": {"data": [{"index": 0, "score": 0.5}], "usage": PREFILL},
    "/tokenize": {"tokens": [1, 2], "count": 2},
}  # fmt: skip
Event = tuple[str, Any]  # its name, empty if it has none, and its data


def chunk(text: str, reason: str | None = None, *, chat: bool = True) -> Event:
    part = {"delta": {"content": text}} if chat else {"text": text}
    return "", {"id": "c", "choices": [{"index": 0, **part, "finish_reason": reason}]}


STREAMED: Mapping[str, list[Event]] = {
    CHAT: [chunk("a"), chunk("b", "stop"), ("", {"choices": [], "usage": COUNTS}), ("", "[DONE]")],
    "/v1/completions": [chunk("a", chat=False), chunk("b", "stop", chat=False), ("", "[DONE]")],
    RESPONSES: [
        ("response.created", {"type": "response.created", "response": {"status": "in_progress", "error": None}}),
        ("response.output_text.delta", {"type": "response.output_text.delta", "delta": "a"}),
        ("response.output_text.delta", {"type": "response.output_text.delta", "delta": "b"}),
        ("response.completed", {"type": "response.completed", "response": RESPONSE}),
    ],
    MESSAGES: [
        ("message_start", {"type": "message_start", "message": {"stop_reason": None, "usage": ANTHROPIC}}),
        ("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}),
        ("content_block_delta", {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "b"}}),
        (
            "message_delta",
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        ),
        ("message_stop", {"type": "message_stop"}),
    ],
}
ENDS = (b"[DONE]", b"message_stop", b"response.completed", b"response.incomplete")


def written(events: list[Event]) -> list[bytes]:
    def data(document: Any) -> bytes:
        return document.encode() if isinstance(document, str) else json.dumps(document, separators=(",", ":")).encode()

    return [(b"event: %b\n" % name.encode() if name else b"") + b"data: " + data(doc) + b"\n\n" for name, doc in events]


class Client:
    """What the client of a run gets, and how the run ended."""

    def __init__(self) -> None:
        self.got = b""
        self.ends: list[ReplyEnd] = []

    def push(self, data: bytes) -> None:
        assert not self.ends
        self.got += data

    def on_first(self, run: GatewayRun) -> None:
        assert not self.got

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        self.ends.append(end)


def answered(form: ApiForm, reads: list[bytes], *, streamed: bool, max_tokens: int | None = None) -> Client:
    client = Client()
    run = (
        StreamedRun("r", 1, client, client.push, strip_usage=True, form=form, max_tokens=max_tokens)
        if streamed
        else GatewayRun("r", 1, client, 2**20, form=form, max_tokens=max_tokens)
    )
    run.on_head(200)
    for read in reads:
        run.on_body(read)
    run.on_complete()
    return client


def whole(path: str, document: object, max_tokens: int | None = None) -> ReplyEnd:
    (end,) = answered(FORMS[path], [json.dumps(document).encode()], streamed=False, max_tokens=max_tokens).ends
    return end


def stream(path: str, events: list[Event]) -> tuple[bytes, ReplyEnd]:
    client = answered(FORMS[path], written(events), streamed=True)
    return client.got, client.ends[0]


def changed(document: Any, value: object, *way: str | int) -> Any:
    """Returns a copy with another value at the end of the way."""
    copy = deepcopy(document)
    part = copy
    for step in way[:-1]:
        part = part[step]
    part[way[-1]] = value
    return copy


# --- why it ended ---

REASON_AT: Mapping[str, tuple[str | int, ...]] = {
    CHAT: ("choices", 0, "finish_reason"), "/v1/completions": ("choices", 0, "finish_reason"),
    RESPONSES: ("status",), MESSAGES: ("stop_reason",),
}  # fmt: skip


def test_every_form_is_tried() -> None:
    assert WHOLE.keys() == FORMS.keys()
    assert REASON_AT.keys() == STREAMED.keys() == {path for path, form in FORMS.items() if not form.prefill_only}


@pytest.mark.parametrize("path", WHOLE)
def test_a_whole_answer_is_finished(path: str) -> None:
    end = whole(path, WHOLE[path], MAX_TOKENS)
    assert (end.outcome, json.loads(end.data)) == (Outcome.FINISHED, WHOLE[path])
    counted = {"/tokenize": NO_USAGE, "/v1/messages/count_tokens": NO_USAGE}
    generated = 0 if FORMS[path].prefill_only else 2
    assert end.usage == counted.get(path, Usage(9, generated, 4 if generated else None))


@pytest.mark.parametrize("path", REASON_AT)
@pytest.mark.parametrize("reason", ["abort", "error", "ABORT", "failed", "cancelled", "in_progress", None, "", 7, {}])
def test_an_answer_that_was_given_up_is_a_lost_run(path: str, reason: object) -> None:
    end = whole(path, changed(WHOLE[path], reason, *REASON_AT[path]))
    assert (end.outcome, end.retryable, end.data, end.usage) == (Outcome.ENGINE_ERROR, True, b"", NO_USAGE)
    assert "the end" in end.message or "gave the answer up" in end.message


@pytest.mark.parametrize(
    ("path", "reasons"),
    [
        (CHAT, ("stop", "length", "tool_calls", "content_filter", "function_call", "repetition", "eos")),
        (RESPONSES, ("completed", "incomplete")),
        (MESSAGES, ("end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal", "pause_turn")),
    ],
)
def test_an_answer_ends_for_any_other_reason(path: str, reasons: tuple[str, ...]) -> None:
    for reason in reasons:
        assert whole(path, changed(WHOLE[path], reason, *REASON_AT[path])).outcome is Outcome.FINISHED


@pytest.mark.parametrize(("path", "tokens"), [(CHAT, 2), ("/v1/completions", 2), (RESPONSES, 2), (MESSAGES, 2)])
def test_a_whole_stream_is_finished(path: str, tokens: int) -> None:
    got, end = stream(path, STREAMED[path])
    assert end.outcome is Outcome.FINISHED
    assert got + end.data == b"".join(
        each for each in written(STREAMED[path]) if path != CHAT or b'"choices":[]' not in each
    )


def ending(path: str, reason: str | None) -> list[Event]:
    """A stream that ends for this reason, with the events that end it."""
    ways: dict[str, tuple[str | int, ...]] = {
        MESSAGES: (3, 1, "delta", "stop_reason"),
        RESPONSES: (3, 1, "response", "status"),
    }
    events: list[Event] = changed(STREAMED[path], reason, *ways.get(path, (1, 1, "choices", 0, "finish_reason")))
    return events


@pytest.mark.parametrize("path", STREAMED)
@pytest.mark.parametrize("reason", ["abort", "error", "Abort", "failed", ""])
def test_a_stream_that_is_given_up_ends_with_an_error_and_never_as_if_it_were_whole(path: str, reason: str) -> None:
    if reason == "" and path == RESPONSES:
        return  # its last event has a name that says why
    got, end = stream(path, ending(path, reason))
    assert (end.outcome, end.retryable, end.data) == (Outcome.ENGINE_ERROR, False, b"")
    assert got
    assert not any(mark in got for mark in ENDS)


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_that_is_given_up_before_its_first_token_may_run_elsewhere(path: str) -> None:
    tokens = {RESPONSES: slice(1, 3), MESSAGES: slice(1, 3), CHAT: slice(0, 1), "/v1/completions": slice(0, 1)}
    events = ending(path, "abort")
    del events[tokens[path]]
    got, end = stream(path, events)
    assert (end.outcome, end.retryable, got) == (Outcome.ENGINE_ERROR, True, b"")


def test_a_reason_counts_however_it_is_written_and_whatever_follows() -> None:
    spaced = [b"data: " + json.dumps(doc).encode() + b"\n\n" for _, doc in ending(CHAT, "abort")[:2]]
    done = b"data: [DONE]\n\n"
    for reads in ([*spaced, done], [b"".join(spaced) + done]):
        (end,) = answered(FORMS[CHAT], reads, streamed=True).ends
        assert end.outcome is Outcome.ENGINE_ERROR
    after = [chunk("a"), chunk("b", "stop"), chunk(""), ("", "[DONE]")]  # as SGLang tells hidden states
    assert stream(CHAT, after)[1].outcome is Outcome.FINISHED
    assert (
        stream(CHAT, [chunk("a"), chunk('"finish_reason":"abort"'), chunk("b", "stop")])[1].outcome is Outcome.FINISHED
    )


def test_a_failed_response_without_an_error_is_a_lost_run() -> None:
    failed = "response.failed", {"type": "response.failed", "response": {"status": "failed"}}
    assert stream(RESPONSES, [*STREAMED[RESPONSES][:3], failed])[1].outcome is Outcome.ENGINE_ERROR


# --- what it counts ---


@pytest.mark.parametrize(
    "counts",
    [
        {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 8}},
        {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 15},
        {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": "16"},
        {"input_tokens": 7, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 2_000_002_000}},
        {"input_tokens": 2**31, "output_tokens": 1, "cache_read_input_tokens": 2**31},
        {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": -1},
        *({"prompt_tokens": 7, "completion_tokens": n} for n in (2**63, 2**31 + 1, -1, 1e300, True, None, "7", [7])),
        *(
            {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": n}}
            for n in (2**63, -1, 1e300, True, "7", [7])
        ),
    ],
)
def test_counts_are_believed_together_or_not_at_all(counts: dict[str, Any]) -> None:
    assert usage_of({"usage": counts}) is None
    assert whole(CHAT, {**WHOLE[CHAT], "usage": counts}).usage == NO_USAGE
    assert AnswerMerger(1, True).whole([orjson.dumps({**WHOLE[CHAT], "usage": {"prompt_tokens": 2**64 - 1}})])


def test_counts_that_are_not_told_are_no_contradiction() -> None:
    plain = {"prompt_tokens": 7, "completion_tokens": 9}
    for details in (None, {}, {"cached_tokens": None}):
        assert usage_of({"usage": {**plain, "total_tokens": None, "prompt_tokens_details": details}}) == Usage(7, 9)
    assert usage_of({"usage": {"input_tokens": 0, "output_tokens": 9}}) == Usage(None, 9)


def test_more_output_than_was_asked_for_is_not_believed() -> None:
    for most, usage in ((2, Usage(9, 2, 4)), (None, Usage(9, 2, 4)), (1, NO_USAGE)):
        assert whole(CHAT, WHOLE[CHAT], most).usage == usage
        end = answered(FORMS[CHAT], written(STREAMED[CHAT]), streamed=True, max_tokens=most).ends[0]
        assert (end.outcome, end.usage) == (Outcome.FINISHED, usage)


def test_a_later_count_that_is_not_believed_takes_the_former_with_it() -> None:
    events = changed(STREAMED[MESSAGES], -1, 3, 1, "usage", "output_tokens")
    assert stream(MESSAGES, events)[1].usage == NO_USAGE


# --- what it is ---


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, {"choices": []}), (CHAT, {"choices": 7}), (CHAT, {"choices": [7]}), (CHAT, []), (CHAT, 7),
        (CHAT, {"choices": [{"finish_reason": "stop"}, {"finish_reason": None}]}),
        (CHAT, {**WHOLE[CHAT], "x": json.loads("[" * 300 + "]" * 300)}),
        (MESSAGES, {"content": 7, "stop_reason": "end_turn"}), ("/v1/embeddings", {"data": 7}),
        ("/v1/messages/count_tokens", {"input_tokens": True}), ("/v1/messages/count_tokens", {"input_tokens": -1}),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_a_lost_run(path: str, document: object) -> None:
    end = whole(path, document)
    assert (end.outcome, end.retryable) == (Outcome.ENGINE_ERROR, True)


def test_an_error_that_is_nested_deeply_ends_a_stream() -> None:
    nested = ("", {"error": {"message": json.loads("[" * 300 + "]" * 300), "code": 500}})
    assert stream(CHAT, [chunk("a"), nested])[1].outcome is Outcome.ENGINE_ERROR


def test_answers_are_merged_whatever_is_in_them() -> None:
    merger = AnswerMerger(2, True)
    for part in (0, 1):
        lies = {**WHOLE[CHAT], "usage": {"prompt_tokens": 2**64 - 1, "completion_tokens": 2**64 - 1}}
        events = b'data: {\n\ndata: 7\n\ndata: []\n\ndata: {"choices":[{]}\n\ndata: {"choices":[7]}\n\n'
        deep = b'data: {"choices":[{"x":' + b"[" * 400 + b"]" * 400 + b"}]}\n\n"
        assert merger.events(part, events + deep + b"data: " + orjson.dumps(lies) + b"\n\n")
    assert orjson.loads(merger.end().split(b"\n\n")[0].removeprefix(b"data: "))["usage"]["total_tokens"] == 0


# --- thousands of answers that were changed ---

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 9, 2**31, 2**53, 2**63, 2**64, 10**30, 1e300, math.nan, math.inf, "", "abort", "error",
    "stop", "completed", "failed", "7", "x" * 3000, "\u0000\n\n", "data: [DONE]\n\n", '"finish_reason":"stop"', [], {},
    [[]], [7], {"error": "no"}, {"cached_tokens": 2**40}, {"content": "a"}, {"code": 99},
)  # fmt: skip


def places(document: Any, way: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    steps = document if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    return [at for step in steps for at in ((*way, step), *places(document[step], (*way, step)))]


def altered(dice: Random, document: Any) -> Any:
    """Returns a document with up to three of its parts changed, left out, doubled or added to."""
    document = deepcopy(document)
    for _ in range(dice.randint(0, 3)):
        ways = places(document)
        if not ways:
            return document
        *before, last = dice.choice(ways)
        part: Any = document
        for step in before:
            part = part[step]
        match dice.randrange(4):
            case 0:
                del part[last]
            case 1 if isinstance(part, list):
                part.append(deepcopy(part[0]))
            case 2 if isinstance(part, dict):
                name = dice.choice(("error", "usage", "finish_reason", "status", "choices"))
                part[name] = deepcopy(dice.choice(ODD))
            case _:
                part[last] = deepcopy(dice.choice(ODD))
    return document


def garbled(dice: Random, data: bytes) -> bytes:
    """Returns what was sent, with a part of it left out, said twice or overwritten now and then."""
    if dice.random() < 0.7 or not data:
        return data
    a, b = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return dice.choice((data[:a] + data[b:], data[:b] + data[a:], data[:a] + dice.randbytes(b - a) + data[b:]))


def cut(dice: Random, data: bytes) -> list[bytes]:
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 1, 8))))
    return [data[i:j] for i, j in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def says_that_it_ended(form: ApiForm, data: bytes, *, streamed: bool) -> bool:
    """Whether some JSON in what the client got names a reason for the end that is none of a lost run."""
    lost = ("", "abort", "error", "failed", "cancelled", "in_progress")
    lines = data.replace(b"\r", b"\n").split(b"\n") if streamed else [data]
    found: list[Any] = []
    for line in lines:
        try:
            document = orjson.loads(line.removeprefix(b"data:").strip())
        except orjson.JSONDecodeError:
            continue
        for way in places(document):
            part = document
            for step in way:
                part = part[step]
            if way[-1] in ("finish_reason", "stop_reason", "status"):
                found.append(part)
    if form.path == RESPONSES and (b"response.completed" in data or b"response.incomplete" in data):
        return True
    return any(isinstance(each, str) and each.lower() not in lost for each in found) or not form.reason


@pytest.mark.parametrize(
    ("path", "streamed"), [*((path, False) for path in WHOLE), *((path, True) for path in STREAMED)]
)
@settings(max_examples=examples(400))
@given(st.integers(0, 2**32))
def test_whatever_is_changed_in_an_answer_nothing_false_is_booked(path: str, streamed: bool, seed: int) -> None:
    dice, form = Random(seed), FORMS[path]
    if streamed:
        events = [(name, altered(dice, doc)) for name, doc in STREAMED[path] if dice.random() < 0.9]
        if dice.random() < 0.2:
            dice.shuffle(events)
        data = garbled(dice, b"".join(written(events)))
    else:
        data = garbled(dice, json.dumps(altered(dice, WHOLE[path])).encode())
    client = answered(form, cut(dice, data), streamed=streamed, max_tokens=MAX_TOKENS if form.reason else 0)
    (end,) = client.ends
    assert len(end.message) <= MAX_TEXT + 100
    usage = end.usage
    if end.outcome is not Outcome.FINISHED:
        assert end.outcome in (Outcome.ENGINE_ERROR, Outcome.ENGINE_REFUSED)
        assert usage == NO_USAGE
        assert bool(end.data) is (end.outcome is Outcome.ENGINE_REFUSED)
        assert not (end.retryable and client.got)
        assert end.message
        return
    got = client.got + end.data
    assert says_that_it_ended(form, got, streamed=streamed), got
    assert 0 <= (usage.cached_tokens or 0) <= (usage.prompt_tokens or 0) <= MOST_TOKENS
    assert 0 <= (usage.output_tokens or 0) <= (MAX_TOKENS if form.reason else 0)
    if form.chunked:
        merger = AnswerMerger(1, True)
        merged = merger.events(0, got) + merger.end() if streamed else merger.whole([got])
        for line in merged.split(b"\n\n") if streamed else [b"data: " + merged]:
            assert not line or line == b"data: [DONE]" or orjson.loads(line.removeprefix(b"data: "))
