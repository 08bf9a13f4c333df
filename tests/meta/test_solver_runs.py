"""The processes of rehearsals and searches: what they are asked, and how their failures are told."""

import sys
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.control_agents import PlansSearched, RehearsalAnswered, Rehearse, SearchPlans
from hmas.contracts.past import PastBlock
from hmas.contracts.pool_plan import Budget
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts
from hmas.contracts.request import Slo
from hmas.laws.request_rows import RequestRow, pack
from hmas.meta import plan_searches, rehearsals
from hmas.meta.plan_searches import plan_search_runs
from hmas.meta.rehearsals import rehearsal_runs
from tests.builders.instance_types import CATALOGUE, pool_plan

ROW = RequestRow(arrival_s=-1.0, tenant="t", prompt_tokens=9, slo=Slo(1.0, 0.1))
ENGINE = PoolEngine(max_num_seqs=8, max_model_len=4096, kv_capacity_tokens=8192, block_size=16)
FACTS = PoolFacts(engines=(ENGINE,), workers=1)
ASKED = Rehearse(
    number=3, pool="m", window_s=60.0, facts=FACTS, in_force=Policy(topology=TopologyName.FCFS),
    candidates=(Policy(topology=TopologyName.EDF),), timeout_s=60.0,
)  # fmt: skip


async def answered(monkeypatch: pytest.MonkeyPatch, source: str) -> RehearsalAnswered:
    """Returns what is posted where a process of that source is the simulation, of a pool without a past."""

    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(rehearsals, "COMMAND", (sys.executable, "-c", source))
    monkeypatch.setattr(rehearsals, "past_blocks", nothing)
    bus: Any = None
    posted: list[Any] = []
    runner = rehearsal_runs(bus, "tiny-emulated", posted.append)
    runner.start(ASKED)
    assert runner._task is not None
    await runner._task
    (event,) = posted
    assert isinstance(event, RehearsalAnswered)
    assert event.number == ASKED.number
    return event


async def test_it_is_asked_about_the_pool_and_its_words_are_the_reason_for_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    echo = (
        "import json, sys; q = json.loads(sys.stdin.readline()); "
        "sys.exit(' '.join([q['candidates'][0]['topology'], q['in_force']['topology'], q['profile_name']]))"
    )
    told = await answered(monkeypatch, echo)
    assert (told.rehearsal, told.error) == (None, "edf fcfs tiny-emulated")
    assert told.cpu_s > 0.0


async def test_an_answer_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told = await answered(monkeypatch, "print('on time')")
    assert told.rehearsal is None
    assert "JSON" in told.error


async def test_a_search_is_asked_about_all_pools_with_their_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def past(bus: Any, pool: str, last_s: float) -> list[PastBlock]:
        rows = [replace(ROW, tenant=pool)] * (2 if pool == "m" else 1)
        return [PastBlock(number=0, age_s=0.0, span_s=1.0, rows=pack(rows))]

    echo = (
        "import json, sys; q = json.loads(sys.stdin.readline()); lines = sys.stdin.read().splitlines(); "
        "sys.exit(f\"{q['rows']} {len(lines)} {q['window_s']} {[p['pool'] for p in q['standing']]}\")"
    )
    monkeypatch.setattr(plan_searches, "COMMAND", (sys.executable, "-c", echo))
    monkeypatch.setattr(plan_searches, "past_blocks", past)
    asked = SearchPlans(
        number=5, standing=(pool_plan(tp4=1), pool_plan("n", other2=1)), catalogue=CATALOGUE,
        budgets=(Budget("h100", 8),), window_s=60.0, timeout_s=60.0,
    )  # fmt: skip
    posted: list[Any] = []
    bus: Any = None
    runs = plan_search_runs(bus, posted.append)
    runs.start(asked)
    assert runs._task is not None
    await runs._task
    (event,) = posted
    assert event == PlansSearched(5, (), "[2, 1] 3 60.0 ['m', 'n']", event.cpu_s)
    assert event.cpu_s > 0.0
