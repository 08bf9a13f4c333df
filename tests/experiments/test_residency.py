"""The study of models that take turns on a card: what sharing and sleeping do to engines, and what its goals say."""

from pathlib import Path

import pytest

from experiments.maestro.workload import SLO
from experiments.residency.fleet import HostFleet, HostRun, HostSystem
from experiments.residency.measure import COLLATED, OURS, SYSTEMS, HostCell
from experiments.residency.models import QWEN3, TWELVE
from experiments.residency.page import GAINS, HostRow, goals_of, page_of, rows_of
from experiments.residency.workload import CARDS, tails_s
from experiments.study import Options
from hmas.contracts.job import NO_CHAIN
from hmas.contracts.request import Request, TaskType
from hmas.host.agent.config import HostConfig
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.jobs import JobCall, SimJob


def job(name: str, model: str, at_s: float, budget_s: float, *, output: int = 100) -> SimJob:
    request = Request(
        id=f"{name}-0", model=model, tenant="acme", flow="", prompt_tokens=1000, max_tokens=4096, stream=True, slo=SLO,
        slo_stated=False, priority=0, weight=1.0, importance=0.75, arrival_s=at_s, prefix=NO_CHAIN,
    )  # fmt: skip
    call = JobCall(offered=OfferedRequest(request=request, output_tokens=output, slo=SLO, task=TaskType.UNKNOWN))
    return SimJob(id=name, template=model, interactive=False, arrival_s=at_s, budget_s=budget_s, calls=(call,))


def run(system: str | HostSystem, jobs: list[SimJob], before: list[SimJob] | None = None) -> HostRun:
    chosen = SYSTEMS[system] if isinstance(system, str) else system
    return HostFleet(chosen, 40.0, QWEN3, jobs, before or jobs).run()


def test_a_call_waits_for_its_model_to_wake_and_two_models_share_the_time() -> None:
    small = {each.name: each for each in QWEN3}["4b"]
    one = run(COLLATED, [job("a", "4b", 1.0, 60.0)])
    alone_s = one.ends_s["a"] - 1.0
    assert alone_s == pytest.approx(small.engine().wake_s + tails_s(job("a", "4b", 1.0, 60.0))[0], rel=0.02)
    both = run(COLLATED, [job("a", "4b", 1.0, 60.0), job("b", "0.6b", 1.0, 60.0, output=400)])
    assert both.ends_s["a"] - 1.0 > alone_s * 1.3


def test_an_interrupted_answer_is_whole_and_pays_with_time() -> None:
    """A long answer of the 14B holds the card while somebody wants the 8B within 10 s."""
    jobs = [job("long", "14b", 0.0, 400.0, output=1500), job("soon", "8b", 5.0, 10.0)]
    theirs, ours = run(COLLATED, jobs), run(OURS, jobs)
    assert theirs.interrupts == 0
    assert theirs.ends_s["soon"] > 15.0 > ours.ends_s["soon"]
    assert ours.interrupts == 1
    assert theirs.ends_s["long"] < ours.ends_s["long"] < theirs.ends_s["long"] + 10.0


def test_nobody_is_interrupted_where_the_answer_would_be_late_by_it() -> None:
    jobs = [job("long", "14b", 0.0, 54.0, output=1500), job("soon", "8b", 5.0, 10.0)]
    assert run(OURS, jobs).interrupts == 0


def test_the_cards_hold_what_they_are_said_to_hold() -> None:
    for card_gb, models in CARDS.values():
        HostConfig(host="h", cards={"card": card_gb}, engines=tuple(each.engine() for each in models))
    asleep_gb = TWELVE[0].context_gb
    held_gb = [n * TWELVE[0].engine().awake_gb + (12 - n) * asleep_gb for n in (4, 5)]
    assert held_gb[0] <= 80.0 < held_gb[1]


def rows(gain: float, seeds: int = 3) -> list[HostRow]:
    return [
        HostRow(*load, system, tuple(range(seeds)), shares, 30.0, 90.0, 10.0, 0.3)
        for load in GAINS
        for system, shares in ((COLLATED, (0.7,) * seeds), (OURS, (0.7 + gain,) * seeds))
    ]


@pytest.mark.parametrize(("gain", "met"), [(0.11, [True] * 3), (0.06, [True, True, False]), (-0.01, [False] * 3)])
def test_goals(gain: float, met: list[bool]) -> None:
    assert [goal.met for goal in goals_of(rows(gain))] == met


def test_without_a_run_nothing_is_judged_or_shown() -> None:
    assert [goal.met for goal in goals_of([])] == [None] * 3
    assert rows_of(Options(data=Path("data")), {}) == []
    assert page_of([], Options(), {})["summary"] == []


def test_a_cell_is_told_in_words() -> None:
    cell = HostCell(card="five", jobs_per_s=0.06, system=OURS, seed=11, data="")
    assert str(cell) == "five, 0.06 jobs/s, by deadline, seed 11"
