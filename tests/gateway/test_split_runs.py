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
from tests.gateway.test_picker import stream
from tests.worker.adapters.scripted_engine import Peer

PARAMS = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 5601, "remote_request_id": "cmpl-1"}
FIRST = {
    "choices": [{"index": 0, "message": {"content": "a"}, "finish_reason": "length"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
    "kv_transfer_params": PARAMS,
}
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
        assert first["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
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


async def test_a_proxy_sends_one_leg_and_the_worker_hears_that_no_other_computes_the_prompt() -> None:
    async with gateway() as g, stream(g) as s:
        g.workers.changes = {"prefill": "e1"}
        s.request()
        s.body()
        await s.says(2)
        [told] = g.workers.of(Prefilled)
        g.workers.say("w1", Proceed(told.request_id, told.grant, "e1"))
        s.answer()
        await s.says(3)
        await s.end()
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.FINISHED]
        assert g.engine.requests == []
