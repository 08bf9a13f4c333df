"""The outcome of an answer's deadline comes in its `usage` where a client asks for it, and the SDKs read the answer."""

import asyncio
from typing import Any

import anthropic
import openai
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.gateway.usage_outcome import HeldUsage, told_fields, with_outcome
from tests.conftest import PATIENCE_S
from tests.gateway.gateway_harness import (
    DONE,
    PATH,
    STREAMED,
    Gateway,
    body,
    broken,
    client,
    event,
    gateway,
    last,
    stream,
    usage,
)
from tests.worker.adapters.scripted_engine import Peer

ON_TIME = {"ttft_ms": 60000.0, "tpot_ms": 60000.0, "from": "header", "on_time": True}
ASKED = {"x-hmas-outcome": "usage", "x-slo-ttft-ms": "60000", "x-slo-tpot-ms": "60000"}
TOLD = "ttft_ms=900; tpot_ms=150; from=header; on_time=false; missed=ttft,tpot; late_ms=500.5"
FIELDS = {"ttft_ms": 900.0, "tpot_ms": 150.0, "from": "header", "on_time": False, "missed": ["ttft", "tpot"],
          "late_ms": 500.5}  # fmt: skip


def test_the_fields_are_those_of_the_header() -> None:
    assert told_fields(TOLD) == FIELDS


def test_an_answer_without_usage_stays_as_it_is() -> None:
    for data in (b'{"id":1}', b'{"id":1, "usage":null}', b"[1]"):
        assert with_outcome(data, TOLD) == data


# --- pieces of streams

CHUNKS = (event(0), event(1), b": keep-alive\n\n", last(2), usage(3), DONE)
CONTINUOUS = b'data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
QUOTED = b'data: {"choices":[{"delta":{"content":"\\"choices\\":[] \\"usage\\":{"}}]}\n\n'


@given(cuts=st.sets(st.integers(1, len(CHUNKS) - 1)))
def test_however_the_events_come_the_last_counts_wait_for_the_outcome(cuts: set[int]) -> None:
    held, sent = HeldUsage(named=False), b""
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(CHUNKS)], strict=True):
        sent += held.passed(b"".join(CHUNKS[begin:end]))
    assert sent == b"".join(CHUNKS[:4])
    *_, counts, done = (sent + held.end(TOLD)).split(b"\n\n")[:-1]
    assert orjson.loads(counts.removeprefix(b"data: "))["usage"]["hmas_slo"] == FIELDS
    assert done + b"\n\n" == DONE


def test_counts_beside_tokens_and_texts_that_look_like_them_pass() -> None:
    held = HeldUsage(named=False)
    assert held.passed(CONTINUOUS + QUOTED) == CONTINUOUS + QUOTED
    assert held.end(TOLD) == b""


def test_lines_may_end_with_carriage_returns_and_a_failed_answer_gets_no_outcome() -> None:
    held, data = HeldUsage(named=False), (usage(3) + DONE).replace(b"\n", b"\r\n")
    assert held.passed(event(0).replace(b"\n", b"\r\n") + data) == event(0).replace(b"\n", b"\r\n")
    assert held.end("") == data
    held.passed(data)
    assert b'"hmas_slo"' in held.end(TOLD)


def test_nothing_is_written_past_the_queue_where_counts_come() -> None:
    held, written = HeldUsage(named=False), list[bytes]()

    def write(data: bytes) -> bool:
        written.append(data)
        return True

    direct = held.direct(write)
    assert direct is not None
    assert [direct(event(0)), direct(usage(3)), direct(event(1))] == [True, False, True]
    assert written == [event(0), event(1)]
    held.passed(usage(3))
    assert held.direct(write) is None


def test_the_counts_with_which_a_message_begins_do_not_wait() -> None:
    held = HeldUsage(named=True)
    begin, delta = named("message_start", message=MESSAGE), named("message_delta", usage={"output_tokens": 2})
    assert held.passed(begin + delta) == begin
    assert b'"hmas_slo"' in held.end(TOLD)


# --- the SDKs


def named(name: str, **fields: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **fields}))


MESSAGE: dict[str, Any] = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [],
                           "stop_reason": None, "usage": {"input_tokens": 5, "output_tokens": 0}}  # fmt: skip
RESPONSE: dict[str, Any] = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "output": [],
                            "status": "in_progress", "usage": None, "tools": [], "tool_choice": "auto",
                            "parallel_tool_calls": True}  # fmt: skip
RESPONDED = {
    **RESPONSE, "status": "completed",
    "usage": {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 0},
              "output_tokens_details": {"reasoning_tokens": 0}},
    "output": [{"id": "o", "type": "message", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "ab", "annotations": []}]}],
}  # fmt: skip
CHAT_ANSWER = {
    "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "ab"}}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
}  # fmt: skip
CHAT_CHUNK = b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]%b}\n\n'


async def speaking(peer: Peer) -> None:
    """An engine that speaks three dialects."""
    streamed = orjson.loads(peer.body).get("stream")
    text = {"type": "text_delta", "text": "a"}
    done = {"stop_reason": "end_turn", "stop_sequence": None}
    if peer.path == "/v1/messages":
        if not streamed:
            answer = {**MESSAGE, **done, "content": [{"type": "text", "text": "ab"}]}
            await peer.reply(orjson.dumps(answer))
            return
        await stream(
            peer, named("message_start", message=MESSAGE),
            named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            named("content_block_delta", index=0, delta=text), named("content_block_delta", index=0, delta=text),
            named("content_block_stop", index=0), named("message_delta", delta=done, usage={"output_tokens": 2}),
            named("message_stop"),
        )  # fmt: skip
    elif peer.path == "/v1/responses":
        if not streamed:
            await peer.reply(orjson.dumps(RESPONDED))
            return
        await stream(
            peer, named("response.created", response=RESPONSE, sequence_number=0),
            named("response.output_text.delta", item_id="o", output_index=0, content_index=0, delta="ab",
                  sequence_number=1),
            named("response.completed", response=RESPONDED, sequence_number=2),
        )  # fmt: skip
    elif not streamed:
        await peer.reply(orjson.dumps(CHAT_ANSWER))
    else:
        token, end = (
            b'{"index":0,"delta":{"content":"a"}}',
            b'{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}',
        )
        counts = b',"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}'
        await stream(peer, CHAT_CHUNK % (token, b""), CHAT_CHUNK % (end, b""), CHAT_CHUNK % (b"", counts), DONE)


def openai_client(g: Gateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{g.url}/v1", api_key="unused", max_retries=0, timeout=PATIENCE_S, default_headers=ASKED
    )


HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("n", [1, 2])
async def test_openai_reads_the_outcome_of_chat(n: int) -> None:
    async with gateway(behave=speaking) as g, openai_client(g) as http:
        whole = await http.chat.completions.create(model="m", messages=HELLO, n=n)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 2 * n
        assert whole.usage.to_dict()["hmas_slo"] == ON_TIME
        async with http.chat.completions.stream(model="m", messages=HELLO, n=n) as events:
            final = await events.get_final_completion()
        assert [choice.message.content for choice in final.choices] == ["ab"] * n
        assert final.usage is not None  # though the body did not ask for it
        assert (final.usage.completion_tokens, final.usage.to_dict()["hmas_slo"]) == (2 * n, ON_TIME)


async def test_openai_reads_the_outcome_of_responses() -> None:
    async with gateway(behave=speaking) as g, openai_client(g) as http:
        whole = await http.responses.create(model="m", input="Hello")
        assert whole.output_text == "ab"
        assert whole.usage is not None
        assert whole.usage.to_dict()["hmas_slo"] == ON_TIME
        events = [each async for each in await http.responses.create(model="m", input="Hello", stream=True)]
        assert [each.type for each in events] == [
            "response.created",
            "response.output_text.delta",
            "response.completed",
        ]
        completed: Any = events[-1]
        assert completed.response.output_text == "ab"
        assert completed.response.usage.to_dict()["hmas_slo"] == ON_TIME


async def test_anthropic_reads_the_outcome_of_messages() -> None:
    async with (
        gateway(behave=speaking) as g,
        anthropic.AsyncAnthropic(
            base_url=g.url, api_key="unused", max_retries=0, timeout=PATIENCE_S, default_headers=ASKED
        ) as http,
    ):
        whole = await http.messages.create(model="m", messages=HELLO, max_tokens=9)
        assert whole.usage.to_dict()["hmas_slo"] == ON_TIME
        outcomes = list[Any]()
        async with http.messages.stream(model="m", messages=HELLO, max_tokens=9) as events:
            async for each in events:
                if each.type == "message_delta":
                    outcomes.append(each.usage.to_dict()["hmas_slo"])
            final = await events.get_final_message()
        assert outcomes == [ON_TIME]
        assert (final.content[0].to_dict()["text"], final.usage.output_tokens) == ("aa", 2)
        assert final.usage.input_tokens == 5


# --- over HTTP


async def test_counts_that_come_alone_wait_for_the_end() -> None:
    """The bytes of the answer go straight to the connection by then."""
    gates = [asyncio.Event() for _ in range(3)]

    async def step_by_step(peer: Peer) -> None:
        await peer.begin_chunks()
        for data, gate in zip((event(0), event(1), last(2) + usage(3)), gates, strict=True):
            await peer.chunk(data)
            await gate.wait()
        await peer.chunk(DONE)
        await peer.end_chunks()

    seen, asked = b"", orjson.dumps(STREAMED)
    async with (
        gateway(behave=step_by_step) as g,
        client(g) as http,
        asyncio.timeout(PATIENCE_S),
        http.stream("POST", PATH, content=asked, headers=ASKED) as response,
    ):
        async for data in response.aiter_raw():
            seen += data
            for gate, token in zip(gates, (event(0), event(1), last(2)), strict=True):
                if token in seen:
                    gate.set()
    assert b'"hmas_slo":{"ttft_ms":60000.0' in seen
    assert seen.endswith(DONE)


async def test_a_stream_that_breaks_off_tells_no_outcome() -> None:
    async with gateway(behave=broken(event(0), last(1), usage(2))) as g, client(g) as http:
        answer = await http.post(PATH, content=orjson.dumps(STREAMED), headers=ASKED)
        assert answer.content.startswith(event(0) + last(1) + usage(2))
        assert b"engine_error" in answer.content
        assert b"hmas_slo" not in answer.content


async def test_counts_are_as_they_were_without_the_header() -> None:
    async with gateway(behave=speaking) as g, client(g) as http:
        assert (await http.post(PATH, content=body())).json() == CHAT_ANSWER
        plain = await http.post(PATH, content=body(stream=True), headers={"x-hmas-outcome": "comment"})
        assert b"usage" not in plain.content
