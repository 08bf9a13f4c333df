"""Split runs whose legs run at once, as SGLang has it: what both engines get, and whose failure ends what."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import orjson
import pytest

from hmas.contracts.execution import Ended, FirstToken, Prefilled
from hmas.contracts.outcome import Outcome
from hmas.gateway.engines.paired_runs import PromptLeg
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    PATH,
    PLAIN,
    Gateway,
    answer,
    asking,
    broken,
    client,
    engine_info,
    event,
    failing,
    gateway,
    last,
    silence,
    usage,
)
from tests.gateway.gateway_harness import stream as streamed
from tests.gateway.test_picker import stream
from tests.worker.adapters.scripted_engine import Handler, Peer, ScriptedEngine

PORT = 8998


@asynccontextmanager
async def pair(prompts: Handler = answer, answers: Handler = answer) -> AsyncIterator[tuple[Gateway, ScriptedEngine]]:
    """A gateway with two engines, of which the second computes the prompts of the first."""
    async with gateway(behave=answers) as g:
        other = g.engines["late"]
        other.script[PATH] = prompts
        g.add_worker("w1", engines=(engine_info(g.engine.url), engine_info(other.url, engine="p")))
        g.workers.changes = {"prefill": "p", "bootstrap_port": PORT}
        yield g, other


async def one_token(peer: Peer) -> None:
    """What SGLang answers that has computed a prompt for another one."""
    if not orjson.loads(peer.body).get("stream"):
        details = {"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}}
        await peer.reply(orjson.dumps({**orjson.loads(PLAIN), "usage": details}))
        return
    await streamed(peer, last(7), usage(1, prompt=7, cached=3), DONE)


async def an_error_event(peer: Peer) -> None:
    await streamed(peer, b'data: {"error": {"message": "KV transfer failed", "code": 500}}\n\n', DONE)


def sent(engine: ScriptedEngine) -> list[dict[str, Any]]:
    return [orjson.loads(peer.body) for peer in engine.requests]


@pytest.mark.parametrize("stream", [False, True])
async def test_both_engines_get_one_body_at_once_and_the_client_the_answer_of_one(stream: bool) -> None:
    """Neither waits for the other: the one that answers is asked while the other one says nothing."""
    released = asyncio.Event()

    async def slowly(peer: Peer) -> None:
        await released.wait()
        await one_token(peer)

    async with pair(prompts=slowly) as (g, other), client(g) as c:
        asked = asyncio.ensure_future(c.post(PATH, json={**CHAT, "max_tokens": 9, "stream": stream}))
        await g.until(lambda: len(g.engine.requests) + len(other.requests) == 2)
        released.set()
        reply = await asked
        await g.until(lambda: bool(g.workers.of(Ended)))
        [first], [second] = sent(other), sent(g.engine)
        assert first == second
        assert (first["bootstrap_host"], first["bootstrap_port"]) == ("127.0.0.1", PORT)
        assert 0 <= first["bootstrap_room"] < 2**63
        assert (first["max_tokens"], first["messages"], "kv_transfer_params" in first) == (9, CHAT["messages"], False)
        heads = [peer.headers["x-request-id"] for peer in (*g.engine.requests, *other.requests)]
        assert heads[0] == heads[1]
        assert b'"7"' not in reply.content
        assert (reply.content == PLAIN) is not stream
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.FINISHED]


async def test_each_request_has_a_room_of_its_own() -> None:
    async with pair(prompts=one_token) as (g, other), client(g) as c:
        for _ in range(3):
            assert (await c.post(PATH, json=CHAT)).status_code == 200
        assert len({body["bootstrap_room"] for body in sent(other)}) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_the_worker_hears_when_the_prompt_is_computed(stream: bool) -> None:
    released = asyncio.Event()

    async def later(peer: Peer) -> None:
        await released.wait()
        await answer(peer)

    async with pair(prompts=one_token, answers=later) as (g, _), client(g) as c:
        asked = asyncio.ensure_future(c.post(PATH, json={**CHAT, "stream": stream}))
        await g.until(lambda: bool(g.workers.of(Prefilled)))
        assert [told.cached_tokens for told in g.workers.of(Prefilled)] == [3]
        assert not g.workers.of(Ended)
        released.set()
        assert (await asked).status_code == 200
        assert len(g.workers.of(FirstToken)) == stream


FAILURES = {"status": failing(500, b'{"error": "no"}'), "broken": broken(), "event": an_error_event}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_prompt_that_is_lost_ends_the_run_and_its_engine_is_named(name: str) -> None:
    async with pair(prompts=FAILURES[name], answers=silence) as (g, _), client(g) as c:
        reply = await c.post(PATH, json={**CHAT, "stream": True})
        [ended] = g.workers.of(Ended)
        assert (reply.status_code, ended.at_prefill, ended.retryable) == (502, True, True)
        await g.until(g.engine.requests[0].reader.at_eof)  # the one that would answer is told, too


async def test_a_prompts_engine_that_cannot_be_reached_is_named() -> None:
    async with pair(answers=silence) as (g, other), client(g) as c:
        await other.stop()
        reply = await c.post(PATH, json=CHAT)
        [ended] = g.workers.of(Ended)
        assert (reply.status_code, ended.at_prefill, ended.unreached, ended.retryable) == (502, True, True, True)


async def test_once_a_token_was_relayed_what_becomes_of_the_prompts_engine_changes_nothing() -> None:
    begun, noticed = asyncio.Event(), asyncio.Event()

    async def fails_late(peer: Peer) -> None:
        await begun.wait()
        raise ConnectionError

    async def goes_on(peer: Peer) -> None:
        await peer.begin_chunks()
        await peer.chunk(event(0))
        await noticed.wait()
        for each in (event(1), last(2), usage(3), DONE):
            await peer.chunk(each)
        await peer.end_chunks()

    async with pair(prompts=fails_late, answers=goes_on) as (g, _), client(g) as c:
        asked = asyncio.ensure_future(c.post(PATH, json={**CHAT, "stream": True}))
        await g.until(lambda: bool(g.workers.of(FirstToken)))
        [leg] = g.shell.relay._legs.values()
        assert isinstance(leg, PromptLeg)
        begun.set()
        await g.until(lambda: leg.reader.http is None)
        noticed.set()
        reply = await asked
        assert (reply.status_code, DONE in reply.content) == (200, True)
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert [(each.outcome, each.output_tokens) for each in g.workers.of(Ended)] == [(Outcome.FINISHED, 3)]


@pytest.mark.parametrize(
    ("answers", "at_prefill"),
    [(failing(500), True), (failing(503), False), (broken(), False)],  # a full or broken engine says nothing of another
)
async def test_an_answer_that_fails_stops_the_prompt(answers: Handler, at_prefill: bool) -> None:
    async with pair(prompts=silence, answers=answers) as (g, other), client(g) as c:
        await c.post(PATH, json={**CHAT, "stream": True})
        [ended] = g.workers.of(Ended)
        assert (ended.at_prefill, ended.retryable) == (at_prefill, True)
        await g.until(lambda: bool(other.requests) and other.requests[0].reader.at_eof())


async def test_a_client_that_leaves_stops_both() -> None:
    async with pair(prompts=silence, answers=silence) as (g, other):
        _, writer = await asking(g)
        await g.until(lambda: bool(g.engine.requests and other.requests))
        writer.close()
        await g.until(lambda: g.engine.requests[0].reader.at_eof() and other.requests[0].reader.at_eof())
        await g.until(lambda: bool(g.workers.of(Ended)))
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.CANCELLED]


async def test_a_proxy_sends_one_leg_and_the_gateway_the_other() -> None:
    async with pair(prompts=one_token) as (g, other), stream(g) as s:
        s.request()
        s.body()
        await s.says(2)
        await g.until(lambda: bool(other.requests))
        s.answer()
        await s.says(3)
        await s.end()
        assert [each.outcome for each in g.workers.of(Ended)] == [Outcome.FINISHED]
        assert (g.engine.requests, sent(other)[0]["bootstrap_port"]) == ([], PORT)


async def test_an_engine_that_may_not_be_used_ends_the_run() -> None:
    async with pair() as (g, _), client(g) as c:
        g.workers.changes = {"prefill": "unknown", "bootstrap_port": PORT}
        reply: httpx.Response = await c.post(PATH, json=CHAT)
        [ended] = g.workers.of(Ended)
        assert (reply.status_code, ended.at_prefill, ended.unreached) == (502, True, True)
        assert g.engine.requests == []
