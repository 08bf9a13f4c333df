"""What a defect in one step of the gateway costs: the request that it was about, and nothing else."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hmas.contracts.gateway import (
    FirstTokenRelayed,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    KeysEnded,
    RequestReceived,
    Settle,
    StartRun,
    ToWorker,
)
from hmas.gateway.exchange import Exchange
from hmas.gateway.failures import RequestFailures
from hmas.runtime.step_failures import STEP_FAILURES
from tests.counters import counted
from tests.gateway.gateway_harness import CHAT, STREAMED, Gateway, client, error_of, gateway
from tests.worker.adapters.scripted_engine import Peer


def survive(g: Gateway) -> None:
    """Gives the gateway the policy of its service instead of that of tests."""
    g.host._failed = RequestFailures(g.shell).on_failure


def raise_at(g: Gateway, kind: type, attribute: str = "") -> list[Any]:
    """Makes the agent raise at events of a kind, as long as the list that is returned is empty."""
    raised: list[Any] = []
    step = g.host._agent.step

    def faulty(now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        if isinstance(event, kind) and not raised:
            raised.append(event)
            raise ArithmeticError
        return step(now_s, event)

    g.host._agent.step = faulty  # type: ignore[method-assign]
    return raised


def raise_on(g: Gateway, wrong: Callable[[GatewayEffect], bool]) -> list[Any]:
    """Makes the shell raise instead of carrying out the first effect that is meant."""
    raised: list[Any] = []
    execute = g.host._execute

    def faulty(effect: GatewayEffect) -> None:
        if wrong(effect) and not raised:
            raised.append(effect)
            raise ArithmeticError
        execute(effect)

    g.host._execute = faulty
    return raised


async def held(peer: Peer) -> None:
    """An engine that gives a token and goes on until its client leaves."""
    await peer.begin_chunks()
    await peer.chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    await peer.gone()


@pytest.mark.parametrize("kind", [RequestReceived, FirstTokenRelayed, StartRun])
async def test_a_step_that_raises_ends_its_own_request_alone(kind: type) -> None:
    async with gateway(behave=held) as g, client(g) as c:
        survive(g)
        streaming = asyncio.create_task(c.post("/v1/chat/completions", json=STREAMED))
        first = await g.asked()
        await g.until(lambda: all(exchange.first_s for exchange in g.shell._exchanges.values()))
        before, unsettled = (counted(STEP_FAILURES.labels(name)) for name in (kind.__name__, "Settle"))
        raised = raise_on(g, lambda effect: isinstance(effect, kind)) if kind is StartRun else raise_at(g, kind)
        answer = await c.post("/v1/chat/completions", json={**CHAT, "stream": kind is FirstTokenRelayed})
        assert len(raised) == 1
        assert counted(STEP_FAILURES.labels(kind.__name__)) == before + 1
        assert counted(STEP_FAILURES.labels("Settle")) == unsettled, (
            "what the agent says of it afterwards is no failure"
        )
        if kind is FirstTokenRelayed:  # its answer has begun
            assert "through a defect of its own" in answer.text
        else:
            assert (answer.status_code, error_of(answer)["reason"]) == (500, "internal")
        assert (g.shell.live, len(g.host._agent._state.ledger)) == (1, 1)  # type: ignore[attr-defined]
        assert not streaming.done()
        first.writer.close()
        await streaming


async def test_an_exchange_that_cannot_be_settled_keeps_no_other_from_its_end() -> None:
    async with gateway(behave=held) as g, client(g) as c:
        survive(g)
        asked = [asyncio.create_task(c.post("/v1/chat/completions", json=STREAMED)) for _ in range(3)]
        await g.asked(3)
        await g.until(lambda: all(exchange.first_s for exchange in g.shell._exchanges.values()))
        raised = raise_on(g, lambda effect: isinstance(effect, Settle))
        g.host.post(KeysEnded(tuple(g.shell._exchanges)))
        texts = sorted(
            [("defect of its own" in each.text, "API key" in each.text) for each in await asyncio.gather(*asked)]
        )
        assert len(raised) == 1
        assert texts == [(False, True), (False, True), (True, False)]
        assert (g.shell.live, len(g.host._agent._state.ledger)) == (0, 0)  # type: ignore[attr-defined]


async def test_a_witness_that_raises_costs_no_answer() -> None:
    async with gateway() as g, client(g) as c:
        survive(g)

        def settled(exchange: Exchange) -> None:
            raise ArithmeticError

        g.shell._witness.settled = settled  # type: ignore[method-assign]
        before = counted(STEP_FAILURES.labels("Settle"))
        answers = [await c.post("/v1/chat/completions", json=CHAT) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert counted(STEP_FAILURES.labels("Settle")) == before + 2
        raised = raise_at(g, GatewayTicked)
        await g.until(lambda: bool(raised))
        assert (await c.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_a_request_that_cannot_be_sent_to_its_worker_ends() -> None:
    async with gateway(grants=False) as g, client(g) as c:
        survive(g)
        raised = raise_on(g, lambda effect: isinstance(effect, ToWorker))
        answer = await c.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, len(raised), g.shell.live) == (500, 1, 0)
