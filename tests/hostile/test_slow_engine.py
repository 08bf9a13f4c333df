"""A slow engine beside a hung one, on real sockets, with time a hundred times as fast as in life: 1 s of prefill stands
for 100 s, 50 ms a token for 5 s. The worker says that the engine's counters stand still, which is the worst case."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
from structlog.testing import capture_logs

from hmas.contracts.execution import Ended, EngineShare
from hmas.gateway.agent.config import GatewayConfig, StallConfig
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    PATH,
    PLAIN,
    STREAMED,
    Gateway,
    client,
    error_of,
    event,
    gateway,
    last,
    silence,
)
from tests.gateway.gateway_script import load
from tests.worker.adapters.scripted_engine import Handler, Peer

PACE = StallConfig(least_s=0.3, unknown_s=3.0, check_s=0.02, most_gap_s=0.1)
FIRST_S, STEP_S = 1.0, 0.05


async def slow(peer: Peer) -> None:
    streamed = orjson.loads(peer.body).get("stream")
    if streamed:
        await peer.begin_chunks()
    await asyncio.sleep(FIRST_S)
    for n in range(20):
        if streamed:
            await peer.chunk(event(n))
        await asyncio.sleep(STEP_S)
    if streamed:
        await peer.chunk(last(20) + DONE)
        await peer.end_chunks()
    else:
        await peer.reply(PLAIN)


async def quick(peer: Peer) -> None:
    await peer.begin_chunks()
    for n in range(5):
        await peer.chunk(event(n))
        await asyncio.sleep(0.02)
    await peer.chunk(last(5) + DONE)
    await peer.end_chunks()


async def comments(peer: Peer) -> None:
    await peer.begin_chunks()
    while True:
        await peer.chunk(b": still here\n\n")
        await asyncio.sleep(0.01)


async def stops(peer: Peer) -> None:
    await peer.begin_chunks()
    for n in range(3):
        await peer.chunk(event(n))
    await silence(peer)


@asynccontextmanager
async def watched(behave: Handler) -> AsyncIterator[Gateway]:
    """A gateway that counts tokens as often as the live one in this time, with a worker that reports as often."""
    async with gateway(behave=behave, agent=GatewayConfig(gateway="g", stalls=PACE)) as g:

        async def report() -> None:
            while True:
                g.shell.relay.report_progress()
                g.workers.say("w1", load(EngineShare("e1", 8, False)))
                await asyncio.sleep(0.01)

        reporting = asyncio.create_task(report())
        try:
            yield g
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting


async def test_a_slow_engine_is_never_cut_off() -> None:
    async with watched(slow) as g, client(g) as c:
        for body in (STREAMED, CHAT, STREAMED):
            answers = await asyncio.gather(*(c.post(PATH, json=body) for _ in range(3)))
            for answer in answers:
                assert answer.status_code == 200
                assert answer.content == PLAIN if body is CHAT else answer.content.endswith(DONE)
                assert b"error" not in answer.content
        assert not [ended for ended in g.workers.of(Ended) if ended.stalled]


@pytest.mark.parametrize("hang", [silence, comments])
@pytest.mark.parametrize("body", [STREAMED, CHAT])
async def test_an_engine_that_gives_no_token_loses_the_request(hang: Handler, body: dict[str, object]) -> None:
    async with watched(quick) as g, client(g) as c:
        assert (await c.post(PATH, json=STREAMED)).content.endswith(DONE)  # so that its pace is known
        g.engine.script[PATH] = hang
        with capture_logs() as logs:
            answer = await c.post(PATH, json=body)
        assert answer.status_code == 502  # the worker has no other engine, and refuses it
        assert "gave no token for" in error_of(answer)["message"]
        ended = g.workers.of(Ended)[-1]
        assert (ended.stalled, ended.retryable) == (True, True)
        (line,) = [line for line in logs if line["event"] == "run_stalled"]
        assert (line["engine"], line["worker"]) == ("e1", "w1")
        await g.until(lambda: g.engine.requests[-1].writer.is_closing() or g.engine.requests[-1].reader.at_eof())


async def test_a_stream_that_stops_ends_with_an_error() -> None:
    async with watched(quick) as g, client(g) as c:
        assert (await c.post(PATH, json=STREAMED)).content.endswith(DONE)
        g.engine.script[PATH] = stops
        answer = await c.post(PATH, json=STREAMED)
        *tokens, error, done, rest = answer.content.split(b"\n\n")
        assert (len(tokens), done, rest) == (3, DONE.strip(), b"")
        assert orjson.loads(error.removeprefix(b"data: "))["error"]["code"] == "engine_error"
        ended = g.workers.of(Ended)[-1]
        assert (ended.stalled, ended.retryable, ended.output_tokens) == (True, False, 3)
