"""The process of a rehearsal: what it is asked, and how its failures are told."""

import sys
from typing import Any

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.control_agents import RehearsalAnswered, Rehearse
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts
from hmas.meta import rehearsals
from hmas.meta.rehearsals import RehearsalRunner

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
    runner = RehearsalRunner(bus, "tiny-emulated", posted.append)
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
