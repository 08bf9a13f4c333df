"""The parts of a split request's time to first token, as `hmas why` tells them, against what its engines and its worker
saw on the same clock."""

import asyncio
import time
from dataclasses import asdict, replace
from itertools import accumulate, pairwise
from typing import Any

import httpx
import orjson
import pytest

from hmas.contracts.execution import Prefilled, Proceed
from hmas.contracts.pair_forecast import PairDecision, PairForecast, PairReason
from tests.gateway.gateway_harness import CHAT, PATH, Gateway, answer, client, engine_info, gateway
from tests.gateway.test_picker import stream
from tests.gateway.test_split_runs import asked_by_proxy, computes, fails, is_first, legs
from tests.worker.adapters.scripted_engine import Peer

ROUNDED_S = 1e-5  # the parts are told in whole microseconds


class Seen:
    """Two engines behind one address, and a worker that splits requests between them: `p` computes, `e1` answers.
    `instants` are when each of them saw what, in s on this process's clock."""

    def __init__(self, g: Gateway) -> None:
        self.g, self.instants = g, list[float]()
        info = engine_info(g.engine.url)
        g.add_worker("w1", engines=(info, replace(info, engine="p")))
        g.workers.changes = {"prefill": "p"}

    def see(self) -> None:
        self.instants.append(time.monotonic())

    async def behave(self, peer: Peer) -> None:
        self.see()
        await (computes if is_first(peer) else answer)(peer)

    async def ask(self, c: httpx.AsyncClient, *, streamed: bool = True) -> dict[str, Any]:
        """Returns what is told of a request to which the worker says that it may go on."""
        asked = asyncio.ensure_future(c.post(PATH, json={**CHAT, "stream": streamed}, headers={"x-request-id": "mine"}))
        await self.g.until(lambda: bool(self.g.workers.of(Prefilled)) or asked.done())
        for told in self.g.workers.of(Prefilled):
            self.see()
            self.g.workers.say("w1", Proceed(told.request_id, told.grant, "e1"))
        await asked
        return why(self.g)


def why(g: Gateway) -> dict[str, Any]:
    told: dict[str, Any] = orjson.loads(g.records.journal.timeline("mine") or b"")
    return told


async def test_the_parts_add_up_to_the_time_to_first_token_and_each_engine_has_its_own() -> None:
    async with gateway() as g, client(g) as c:
        seen = Seen(g)
        g.engine.script[PATH] = seen.behave
        told = await seen.ask(c)
        [run], found = told["runs"], g.records.journal.find("mine")
        assert found is not None
        assert found.first_s is not None
        assert (run["prefill_engine"], run["engine"]) == ("p", "e1")
        parts = run["ttft_parts"]
        assert list(parts) == ["queued_s", "prefill_s", "waited_s", "transfer_and_first_step_s"]
        assert sum(parts.values()) == pytest.approx(found.first_s - found.request.arrival_s, abs=ROUNDED_S)
        arrived, started, computed, went_on, first = accumulate(parts.values(), initial=found.request.arrival_s)
        prompt_came, word_went, answer_asked = seen.instants
        happened = [arrived, started, prompt_came, computed, word_went, went_on, answer_asked, first]
        assert all(later > earlier - ROUNDED_S for earlier, later in pairwise(happened)), happened


async def test_what_an_earlier_run_took_is_a_part_of_its_own() -> None:
    async with gateway(workers=("w1",), behave=legs(first=fails)) as g, client(g) as c:
        seen = Seen(g)
        g.workers.refuses = False
        asked = asyncio.ensure_future(seen.ask(c))
        await g.until(lambda: bool(why_runs(g)) and why_runs(g)[0]["ended_s"] is not None)
        g.engine.script[PATH] = seen.behave
        g.workers.grant(*g.workers.submits[0])
        told = await asked
        lost, run = told["runs"]
        assert lost["ttft_parts"]["prefill_s"] is None
        parts = run["ttft_parts"]
        assert parts["earlier_runs_s"] == pytest.approx(lost["ended_s"] - lost["started_s"], abs=ROUNDED_S)
        assert 0.0 <= parts["queued_s"] < run["started_s"]
        assert sum(parts.values()) == pytest.approx(told["ttft_s"], abs=ROUNDED_S)


def why_runs(g: Gateway) -> list[dict[str, Any]]:
    found = g.records.journal.timeline("mine")
    runs: list[dict[str, Any]] = orjson.loads(found)["runs"] if found else []
    return runs


async def test_of_an_answer_in_one_piece_the_first_token_is_not_seen() -> None:
    async with gateway() as g, client(g) as c:
        seen = Seen(g)
        g.engine.script[PATH] = seen.behave
        [run] = (await seen.ask(c, streamed=False))["runs"]
        assert [name for name, part in run["ttft_parts"].items() if part is None] == ["transfer_and_first_step_s"]


@pytest.mark.parametrize("prefill", ["", "p"])
async def test_what_the_worker_expected_is_told_beside_what_came(prefill: str) -> None:
    taken = PairForecast(engine="e1", prefill=prefill, first_s=0.4, late=0.1, step_s=0.02)
    other = PairForecast(engine="e1", prefill="" if prefill else "p", first_s=0.6, late=0.8, step_s=0.03)
    async with gateway(behave=legs()) as g, client(g) as c:
        seen = Seen(g)
        g.workers.changes = {
            "prefill": prefill, "choice": PairDecision(taken=taken, other=other, reason=PairReason.FEWER_LATE),
        }  # fmt: skip
        [run] = (await seen.ask(c))["runs"]
        assert run["choice"] == {"taken": asdict(taken), "other": asdict(other), "reason": "fewer_late"}


async def test_of_one_engine_no_legs_are_told() -> None:
    async with gateway() as g, client(g) as c:
        await c.post(PATH, json={**CHAT, "stream": True}, headers={"x-request-id": "mine"})
        [run] = why(g)["runs"]
        assert not {"prefill_engine", "ttft_parts", "choice"} & run.keys()


async def test_of_what_a_proxy_carries_the_parts_are_told_too() -> None:
    async with gateway(behave=legs()) as g, stream(g) as s:
        told = await asked_by_proxy(g, s)
        s.answer()
        await s.says(3)
        await s.end()
        [run] = orjson.loads(g.records.journal.timeline(told.request_id) or b"")["runs"]
        assert (run["engine"], run["prefill_engine"]) == ("e1", "e1")
        assert min(run["ttft_parts"][name] for name in ("queued_s", "prefill_s", "waited_s")) >= 0.0
