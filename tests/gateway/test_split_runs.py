"""Both legs of a split run at the gateway's shell: the bodies that engines get, and what the worker hears."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import orjson
import pytest

from hmas.contracts.execution import Ended, FirstToken, Prefilled, Proceed
from hmas.contracts.outcome import Outcome
from tests.gateway.gateway_harness import CHAT, PATH, PLAIN, Gateway, answer, asking, client, gateway, silence
from tests.gateway.test_picker import MODES, Stream, headers_of, stream
from tests.worker.adapters.scripted_engine import Peer

PARAMS = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 5601, "remote_request_id": "cmpl-1"}
FIRST = {
    "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
    "kv_transfer_params": PARAMS,
}
OF_A_FIRST_LEG = {
    "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
    "remote_host": None, "remote_port": None,
}  # fmt: skip
Behave = Callable[[Peer], Awaitable[None]]


def is_first(peer: Peer) -> bool:
    return bool(orjson.loads(peer.body).get("kv_transfer_params", {}).get("do_remote_decode"))


async def computes(peer: Peer) -> None:
    await peer.reply(orjson.dumps(FIRST))


async def fails(peer: Peer) -> None:
    await peer.reply(b'{"error": {"message": "no KV"}}', 500)


async def says_nothing_of_kv(peer: Peer) -> None:
    await peer.reply(orjson.dumps({**FIRST, "kv_transfer_params": None}))


def legs(first: Behave = computes, second: Behave = answer) -> Behave:
    """An engine that has both legs, and does this with each."""

    async def behave(peer: Peer) -> None:
        await (first if is_first(peer) else second)(peer)

    return behave


async def ask(g: Gateway, c: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    """A client asks; the worker splits the request, and lets it go on once its prompt is computed."""
    g.workers.changes = {"prefill": "e1"}
    asked = asyncio.ensure_future(c.post(PATH, json={**CHAT, **fields}))
    await g.until(lambda: bool(g.workers.of(Prefilled)) or asked.done())
    for told in g.workers.of(Prefilled):
        g.workers.say("w1", Proceed(told.request_id, told.grant, "e1", due_in_s=1.25))
    return await asked


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_bodies_of_both_legs(streamed: bool) -> None:
    async with gateway(behave=legs()) as g, client(g) as c:
        reply = await ask(g, c, max_tokens=9, min_tokens=4, stream=streamed)
        first, second = (orjson.loads(peer.body) for peer in g.engine.requests)
        assert {name: first[name] for name in ("max_tokens", "max_completion_tokens", "min_tokens", "stream")} == {
            "max_tokens": 1, "max_completion_tokens": 1, "min_tokens": 0, "stream": False,
        }  # fmt: skip
        assert first["kv_transfer_params"] == OF_A_FIRST_LEG
        assert (second["kv_transfer_params"], second["max_tokens"]) == (PARAMS | {"hmas_due_ms": 1250}, 9)
        assert (first["messages"], second["messages"]) == (CHAT["messages"], CHAT["messages"])
        assert (reply.content == PLAIN) is not streamed
        assert len(g.workers.of(FirstToken)) == streamed
        assert [told.cached_tokens for told in g.workers.of(Prefilled)] == [3]
        assert [(each.outcome, each.cached_tokens) for each in g.workers.of(Ended)] == [(Outcome.FINISHED, 3)]


@pytest.mark.parametrize(
    ("behave", "at_prefill", "sent"),
    [
        (legs(first=fails), True, 1),
        (legs(first=says_nothing_of_kv), True, 1),
        (legs(second=fails), True, 2),  # it could not read what the first leg left
    ],
)
async def test_whose_fault_a_run_without_a_token_is(behave: Behave, at_prefill: bool, sent: int) -> None:
    async with gateway(behave=behave) as g, client(g) as c:
        reply = await ask(g, c)
        assert reply.status_code == 502
        [ended] = g.workers.of(Ended)
        assert (ended.at_prefill, ended.retryable, len(g.engine.requests)) == (at_prefill, True, sent)


async def test_a_client_that_leaves_ends_the_first_leg() -> None:
    async with gateway(behave=legs(first=silence)) as g:
        g.workers.changes = {"prefill": "e1"}
        _, writer = await asking(g)
        peer = await g.asked()
        writer.close()
        await g.until(peer.reader.at_eof)
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.CANCELLED]


# --- a proxy carries the answer ---


async def asked_by_proxy(g: Gateway, s: Stream, mode: int = MODES.BUFFERED) -> Prefilled:
    """A proxy asks; the worker splits the request, and lets it go on once its prompt is computed. Returns what the
    worker hears of that."""
    g.workers.changes = {"prefill": "e1"}
    s.request(mode)
    s.body()
    await g.until(lambda: bool(g.workers.of(Prefilled)))
    [told] = g.workers.of(Prefilled)
    assert len(s.said) == (mode == MODES.BUFFERED)  # it holds the request meanwhile
    g.workers.say("w1", Proceed(told.request_id, told.grant, "e1", due_in_s=1.25))
    await s.says(2)
    return told


@pytest.mark.parametrize("mode", [MODES.BUFFERED, MODES.FULL_DUPLEX_STREAMED])
async def test_a_proxy_gets_the_second_leg_of_what_the_gateway_began(mode: int) -> None:
    async with gateway(behave=legs()) as g, stream(g) as s:
        assert (await asked_by_proxy(g, s, mode)).cached_tokens == 3
        [first] = [orjson.loads(peer.body) for peer in g.engine.requests]
        assert (first["max_tokens"], first["stream"]) == (1, False)
        if mode == MODES.BUFFERED:
            told = s.said[1].request_body.response
            sent = told.body_mutation.body
        else:
            told = s.said[0].request_headers.response
            sent = s.said[1].request_body.response.body_mutation.streamed_response.body
        second = orjson.loads(sent)
        named = headers_of(told.header_mutation)
        assert named["x-gateway-destination-endpoint"] == g.engine.url.removeprefix("http://")
        assert int(named["content-length"]) == len(sent)
        assert (second["kv_transfer_params"], second["stream"]) == (PARAMS | {"hmas_due_ms": 1250}, True)
        assert "max_tokens" not in second
        s.answer()
        await g.until(lambda: any(each.HasField("response_headers") for each in s.said))
        await s.end()
        assert [(each.outcome, each.cached_tokens) for each in g.workers.of(Ended)] == [(Outcome.FINISHED, 3)]


@pytest.mark.parametrize(
    ("status", "reached", "at_prefill"), [(500, True, True), (503, False, False), (400, True, False)]
)
async def test_whose_fault_it_is_if_a_proxy_gets_no_answer(status: int, reached: bool, at_prefill: bool) -> None:
    async with gateway(behave=legs()) as g, stream(g) as s:
        await asked_by_proxy(g, s)
        s.answer(status, reached=reached)
        await g.until(lambda: bool(g.workers.of(Ended)))
        [ended] = g.workers.of(Ended)
        assert (ended.status, ended.at_prefill, ended.retryable) == (status, at_prefill, False)
        await s.says(3)
        assert s.said[2].HasField("response_headers") is (status == 400)  # which Envoy relays


@pytest.mark.parametrize(("status", "shown", "retryable"), [(400, 400, False), (500, 502, True)])
async def test_a_first_leg_that_fails_is_told_in_place_of_an_answer(status: int, shown: int, retryable: bool) -> None:
    """Envoy has sent nothing yet, so that it has no answer of an engine to relay."""

    async def refuses(peer: Peer) -> None:
        await peer.reply(b'{"error": {"message": "the prompt is too long", "code": 400}}', status)

    async with gateway(behave=legs(first=refuses)) as g, stream(g) as s:
        g.workers.changes = {"prefill": "e1"}
        s.request()
        s.body()
        code, error, _ = await s.refusal()
        assert code == shown
        assert "the prompt is too long" in error["message"]
        assert [(each.at_prefill, each.retryable) for each in g.workers.of(Ended)] == [(True, retryable)]


async def test_a_client_that_leaves_a_proxy_ends_the_first_leg() -> None:
    async with gateway(behave=legs(first=silence)) as g, stream(g) as s:
        g.workers.changes = {"prefill": "e1"}
        s.request()
        s.body()
        peer = await g.asked()
        await s.end()
        await g.until(peer.reader.at_eof)
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.CANCELLED]
        assert (g.shell.live, len(s.said)) == (0, 1)


# What vLLM 0.32 answers to a first leg; `remote_host` is the side channel's, which need not be where P is asked.
OF_AN_ANSWER = {
    "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[6, 7, 8]], "remote_engine_id": "2436",
    "remote_request_id": "cmpl-x-0-aeb8288b", "remote_host": "10.9.8.7", "remote_port": 5601, "tp_size": 1,
    "dcp_size": 1, "pp_size": 1, "remote_num_tokens": 257, "remote_blocks_expiry_time": None, "transfer_mode": "push",
    "remote_prefill_cached_tokens": 0, "remote_registration_generation": 3, "of_a_later_version": {"a": [1]},
}  # fmt: skip
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}
ASKED: dict[str, dict[str, Any]] = {
    PATH: {**CHAT, **COUNTED, "max_completion_tokens": 9, "min_tokens": 4},
    "/v1/completions": {"model": "m", "prompt": "Hello", "max_tokens": 9, "stream": True},
    "/v1/responses": {"model": "m", "input": "Hello", "max_output_tokens": 9},
    "/v1/messages": {"model": "m", "messages": CHAT["messages"], "max_tokens": 9, "stream": True},
}  # fmt: skip
LIMITS = {
    PATH: ("max_tokens", "max_completion_tokens"), "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",), "/v1/messages": ("max_tokens",),
}  # fmt: skip


@pytest.mark.parametrize("path", ASKED)
async def test_both_bodies_are_those_of_llm_ds_proxy_and_the_production_stacks_router(path: str) -> None:
    """The first is the client's with limits of one token, not streamed and without `stream_options`, and with
    `kv_transfer_params` of six fields. The second is the client's with the first one's `kv_transfer_params` as they
    are, `remote_host` among them, but for the time that is left. Both go under one request id."""

    async def hands_over(peer: Peer) -> None:
        await peer.reply(orjson.dumps({**FIRST, "kv_transfer_params": OF_AN_ANSWER}))

    async with gateway(behave=legs(first=hands_over, second=fails)) as g, client(g) as c:
        await c.post(path, json=ASKED[path])  # whole
        g.workers.changes = {"prefill": "e1"}
        asked = asyncio.ensure_future(c.post(path, json=ASKED[path]))
        await g.until(lambda: bool(g.workers.of(Prefilled)))
        [told] = g.workers.of(Prefilled)
        g.workers.say("w1", Proceed(told.request_id, told.grant, "e1", due_in_s=1.25))
        await asked
        whole, first, second = (orjson.loads(peer.body) for peer in g.engine.requests)
        ids = [peer.headers["x-request-id"] for peer in g.engine.requests[1:]]
    assert ids[0] == ids[1]
    assert second == {**whole, "kv_transfer_params": OF_AN_ANSWER | {"hmas_due_ms": 1250}}
    sent_by_peers = {name: value for name, value in whole.items() if name not in ("stream_options", "min_tokens")}
    sent_by_peers |= dict.fromkeys(LIMITS[path], 1) | {"stream": False, "kv_transfer_params": OF_A_FIRST_LEG}
    assert first.pop("stream_options", None) is None
    assert first.pop("min_tokens", 0) == 0
    assert first == sent_by_peers
