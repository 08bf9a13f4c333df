"""A run: what its client gets, and how it ends, for answers and faults of every shape."""

from collections.abc import Callable

import orjson
import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import CHAT_PATH
from hmas.gateway.engines.answer_checks import Usage
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.engines.sse import MAX_EVENT_BYTES
from hmas.gateway.openai.forms import FORMS
from tests.gateway.gateway_harness import DONE, PLAIN, event, last, usage

ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'


class Heard:
    """A run without an engine, and what came of it."""

    def __init__(self, *, streamed: bool = True, max_bytes: int = 1000) -> None:
        self.pushed = b""
        self.firsts: list[bytes] = []
        self.ends: list[ReplyEnd] = []
        self.run: GatewayRun
        if streamed:
            self.run = StreamedRun("r1", 7, self, self._push, strip_usage=True, form=FORMS[CHAT_PATH])
        else:
            self.run = GatewayRun("r1", 7, self, max_bytes, form=FORMS[CHAT_PATH])

    def _push(self, data: bytes) -> None:
        assert not self.ends
        self.pushed += data

    def on_first(self, run: GatewayRun) -> None:
        assert run is self.run
        self.firsts.append(self.pushed)

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        assert run is self.run
        self.ends.append(end)

    def answer(self, *parts: bytes, status: int = 200) -> ReplyEnd:
        self.run.on_head(status)
        for part in parts:
            self.run.on_body(part)
        self.run.on_complete()
        return self.end

    def breaks(self, *parts: bytes) -> ReplyEnd:
        self.run.on_head(200)
        for part in parts:
            self.run.on_body(part)
        self.run.on_failure("it broke")
        return self.end

    @property
    def end(self) -> ReplyEnd:
        (end,) = self.ends
        return end


def test_a_stream_is_relayed_and_its_usage_told() -> None:
    heard = Heard()
    end = heard.answer(ROLE, event(0), event(1) + last(2), usage(9, 7, 4), DONE)
    assert heard.pushed + end.data == ROLE + event(0) + event(1) + last(2) + DONE
    assert (end.outcome, end.usage) == (Outcome.FINISHED, Usage(7, 9, 4))
    assert heard.firsts == [b""]  # told once, before anything was relayed
    assert heard.run.tokens == 3


LAST = b'data: {"choices":[{"delta":{"content":"z"},"finish_reason":"stop"}]}\n\n'
HALF = b'data: {"choices":[{"delta":{"conte'


@pytest.mark.parametrize(
    "ending",
    [LAST, event(1) + LAST, LAST[:-2], LAST[:-1], LAST + usage(9, 7), LAST + HALF, LAST + b": bye\n\n"],
)
def test_a_stream_that_names_a_reason_for_its_end_is_whole_without_done(ending: bytes) -> None:
    for parts in ([event(0), ending], [event(0) + ending], [bytes([b]) for b in event(0) + ending]):
        heard = Heard()
        end = heard.answer(ROLE, *parts)
        assert end.outcome is Outcome.FINISHED
        whole = ending.removesuffix(HALF).replace(usage(9, 7), b"")
        expected = ROLE + event(0) + whole.rstrip(b"\n") + b"\n\n" + DONE
        assert heard.pushed + end.data == expected


@pytest.mark.parametrize(
    "ending",
    [b"", event(1), event(1)[:-2], HALF, b"data: <html>", usage(9, 7), b'data: {"choices":[{"finish_reason":null}]}',
     b'data: {"choices":[{"delta":{"content":"finish_reason"}}]}'],
)  # fmt: skip
def test_a_stream_that_ends_early_is_an_error(ending: bytes) -> None:
    for parts in ([event(0), ending], [event(0) + ending], [bytes([b]) for b in event(0) + ending]):
        heard = Heard()
        end = heard.answer(*parts)
        assert (end.outcome, end.retryable, end.data) == (Outcome.ENGINE_ERROR, False, b"")
        assert "ended the stream early" in end.message
        for relayed in heard.pushed.removesuffix(b"\n\n").split(b"\n\n"):
            orjson.loads(relayed.removeprefix(b"data: "))


def test_what_is_no_json_before_the_first_token_may_be_retried() -> None:
    heard = Heard()
    end = heard.answer(ROLE, b"data: <html>\n\n", event(0))
    assert (end.outcome, end.retryable, heard.pushed) == (Outcome.ENGINE_ERROR, True, b"")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    "body",
    [b"x" * 300_000, b'{"error":{"message":"%b"}}' % (b"x" * 300_000), b'{"detail":["%b"]}' % (b"\xc3\xa9" * 300_000),
     b'{"error":{"message":"a","type":"%b","param":"%b","code":"%b"}}' % ((b"x" * 300_000,) * 3),
     b'{"error":{"message":%b}}' % (b"[" * 1000 + b"]" * 1000), b"x" * 3 * 2**20],
)  # fmt: skip
@pytest.mark.parametrize("status", [400, 500])
def test_little_of_an_engines_text_is_passed_on(status: int, body: bytes, streamed: bool) -> None:
    end = Heard(streamed=streamed, max_bytes=10**6).answer(*(body[i : i + 2**16] for i in range(0, len(body), 2**16)),
                                                           status=status)  # fmt: skip
    assert (end.status, end.retryable) == (status, status == 500)
    assert end.outcome is (Outcome.ENGINE_ERROR if status == 500 else Outcome.ENGINE_REFUSED)
    assert len(end.message) <= 1100
    assert len(end.data) <= 4 * 1100


def test_a_plain_answer_is_kept_until_it_is_whole() -> None:
    heard = Heard(streamed=False)
    body = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":9}}'
    end = heard.answer(body[:10], body[10:])
    assert end == ReplyEnd(outcome=Outcome.FINISHED, status=200, data=body, usage=Usage(7, 9, None))
    assert (heard.pushed, heard.firsts) == (b"", [])


def test_a_plain_answer_that_is_too_large_is_not_tried_again() -> None:
    heard = Heard(streamed=False, max_bytes=10)
    end = heard.answer(b"x" * 10, b"x")
    assert (end.outcome, end.retryable) == (Outcome.ENGINE_ERROR, False)
    assert "larger than 10 bytes" in end.message


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, b'{"error":{"message":"too long","type":"BadRequestError","param":"x","code":400}}', "too long"),
        (400, b'{"object":"error","message":"flat","type":"BadRequest","param":null,"code":400}', "flat"),
        (422, b'{"detail":[{"msg":"field"}]}', '[{"msg":"field"}]'),
        (404, b"<html>nothing</html>", "<html>nothing</html>"),
        (413, b"", "the engine answered HTTP 413"),
    ],
)
def test_a_refusal_of_any_shape_becomes_an_openai_error(status: int, body: bytes, message: str, streamed: bool) -> None:
    end = Heard(streamed=streamed).answer(body, status=status)
    assert (end.outcome, end.status, end.message, end.retryable) == (Outcome.ENGINE_REFUSED, status, message, False)
    error = orjson.loads(end.data)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["message"], error["code"]) == (message, status)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(
    ("status", "busy"), [(500, False), (502, False), (503, True), (429, True), (401, False), (204, False)]
)
def test_the_engines_own_faults_may_be_retried_elsewhere(status: int, busy: bool, streamed: bool) -> None:
    end = Heard(streamed=streamed).answer(b'{"error":{"message":"full"}}', status=status)
    assert (end.outcome, end.retryable, end.busy, end.data) == (Outcome.ENGINE_ERROR, True, busy, b"")
    assert f"HTTP {status}: full" in end.message


@pytest.mark.parametrize(
    ("code", "outcome", "retryable"), [(503, Outcome.ENGINE_ERROR, True), (400, Outcome.ENGINE_REFUSED, False)]
)
def test_an_error_event_after_200_counts_as_the_status_it_names(code: int, outcome: Outcome, retryable: bool) -> None:
    error = b'{"error":{"message":"queue full","code":%d}}' % code
    heard = Heard()
    end = heard.answer(ROLE, b"data: " + error + b"\n\n")
    assert (end.outcome, end.retryable, end.status, heard.pushed) == (outcome, retryable, code, b"")
    end = Heard(streamed=False).answer(error)
    assert (end.outcome, end.retryable, end.status) == (outcome, retryable, code)


def test_an_error_event_after_a_token_is_final() -> None:
    heard = Heard()
    end = heard.answer(event(0), event(1) + b'data: {"error":{"message":"out of memory"}}\n\n', event(2), DONE)
    assert (end.outcome, end.retryable, end.busy) == (Outcome.ENGINE_ERROR, False, False)
    assert (heard.pushed, heard.run.tokens) == (event(0) + event(1), 2)


def test_a_stream_that_breaks_is_retryable_only_before_its_first_token() -> None:
    heard = Heard()
    end = heard.breaks(ROLE)
    assert (end.outcome, end.retryable, end.unreached) == (Outcome.ENGINE_ERROR, True, False)
    assert (heard.pushed, heard.firsts) == (b"", [])
    heard = Heard()
    end = heard.breaks(ROLE, event(0))
    assert (end.outcome, end.retryable, heard.pushed) == (Outcome.ENGINE_ERROR, False, ROLE + event(0))


def test_a_stream_that_ends_without_a_token_may_be_retried() -> None:
    end = Heard().answer(ROLE)
    assert (end.outcome, end.retryable) == (Outcome.ENGINE_ERROR, True)
    assert end.message == "the engine ended the stream before the first token"


@pytest.mark.parametrize("body", [b"<html>", b'{"choices":[', b"{}", b"null", b"[]", b""])
def test_what_is_no_answer_may_be_retried(body: bytes) -> None:
    end = Heard(streamed=False).answer(body)
    assert (end.outcome, end.retryable, end.status) == (Outcome.ENGINE_ERROR, True, 200)


def test_what_an_engine_sends_before_the_first_token_is_bounded() -> None:
    heard = Heard()
    end = heard.answer(*[b": " + b"x" * (MAX_EVENT_BYTES // 4) + b"\n\n"] * 5)
    assert "bytes before the first token" in end.message


Act = Callable[[Heard], object]


@pytest.mark.parametrize(
    "act",
    [
        lambda h: h.run.on_body(event(1)),
        lambda h: h.run.on_complete(),
        lambda h: h.run.on_failure("late"),
        lambda h: h.run.fail("late"),
        lambda h: h.run.on_body(DONE),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_stopped_run_says_nothing_more(act: Act, streamed: bool) -> None:
    heard = Heard(streamed=streamed)
    heard.run.on_head(200)
    heard.run.on_body(event(0) if streamed else PLAIN)
    before = heard.pushed
    heard.run.stop()
    act(heard)
    assert (heard.pushed, heard.ends) == (before, [])
