"""The stages of jobs: what is learnt of them, what they leave of a budget, and which are forgotten."""

from dataclasses import replace
from typing import Any

from hmas.contracts.gateway import (
    ClientLeft,
    RequestReceived,
)
from hmas.contracts.job import LinkedBy, PrefixChain, Stage
from hmas.contracts.request import Request, Slo
from hmas.gateway.agent.config import JobOutlookConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from hmas.laws.job_profiles import DoneStage, Forecast, Need
from tests.gateway.gateway_script import SLO, Mesh, request

STAGE = Stage(job="j", index=0, parent="", linked=LinkedBy.DECLARED)


def outlook(**changes: Any) -> JobOutlook:
    return JobOutlook(JobOutlookConfig(**changes), prefill_tokens_per_s=1000.0, tpot_s=0.0625)


def staged(name: str, arrival_s: float = 0.0, **changes: Any) -> Request:
    return request(name, arrival_s=arrival_s, prefix=PrefixChain((5,), (0,)), **changes)


def test_the_best_pace_falls_at_once_and_rises_slowly() -> None:
    seen = outlook(timed_tokens=16, rise=0.25)

    def ends(tokens: int, tpot_s: float) -> float:
        seen.arrived(staged("r"), STAGE, 9.0)
        seen.settled(1.0, "r", tokens, tpot_s)
        return seen._tpot_s

    assert ends(15, 0.03125) == 0.0625, "a short answer tells little"
    assert ends(16, 0.0) == 0.0625
    assert ends(16, 0.03125) == 0.03125
    assert ends(16, 0.0625) == 0.03125 + 0.25 * 0.03125
    seen.settled(2.0, "unknown", 99, 0.001)
    assert seen._tpot_s == 0.0390625


def test_a_jobs_stages_are_learnt_in_their_order_with_the_time_between() -> None:
    seen = outlook(silent_s=60.0, max_stages=2)
    learnt: list[tuple[int, list[DoneStage]]] = []
    seen.profiles.learn = lambda template, stages: learnt.append((template, list(stages)))  # type: ignore[method-assign]
    seen.arrived(staged("a", 1.0), STAGE, None)
    seen.arrived(staged("b", 2.0), STAGE, 30.0)
    assert len(seen) == 3
    seen.settled(4.0, "b", 20)
    seen.tick(500.0)
    assert learnt == [], "a stage is open"
    third = seen.arrived(staged("c", 6.5), STAGE, 99.0).job
    assert third is not None
    assert (third.index, third.left_s) == (2, 25.5)
    seen.settled(7.0, "a", 10)
    seen.settled(8.0, "c", 30)
    seen.tick(67.75)
    assert learnt == []
    seen.tick(68.0)
    ((template, stages),) = learnt
    assert template == 5
    assert [(s.output_tokens, s.outside_s, s.after) for s in stages] == [(10, 0.0, -1), (20, 0.0, -1)]
    assert len(seen) == 0
    seen.arrived(staged("d", 100.0), STAGE, None)
    seen.settled(101.0, "d", 10)
    seen.arrived(staged("e", 103.5), STAGE, None)
    seen.settled(104.0, "e", 20)
    seen.tick(164.0)
    assert [(s.output_tokens, s.outside_s, s.after) for s in learnt[-1][1]] == [(10, 0.0, -1), (20, 2.5, 0)]


def test_beyond_the_bound_the_first_job_is_forgotten_with_what_is_open_of_it() -> None:
    seen = outlook(max_jobs=2)
    for name in "abc":
        seen.arrived(staged(name), replace(STAGE, job=name), None)
    assert len(seen) == 4
    seen.settled(1.0, "a", 10)
    seen.settled(1.0, "b", 10)
    seen.settled(1.0, "c", 10)
    assert len(seen) == 2


def test_a_budget_is_taken_off_by_what_a_job_needs_at_least() -> None:
    seen = outlook()
    plain = seen.arrived(staged("a", 1.0, slo_stated=False), STAGE, 8.0)
    assert plain.slo == replace(SLO, ttlt_s=8.0, whole=True)
    assert plain.slo_stated
    stated = seen.arrived(staged("b", 3.0, slo=Slo(2.0, 0.1, 4.0)), STAGE, None)
    assert stated.slo.ttlt_s == 4.0
    stated = seen.arrived(staged("c", 6.0, slo=Slo(2.0, 0.1, 4.0)), STAGE, None)
    assert stated.slo.ttlt_s == 3.0
    late = seen.arrived(staged("d", 9.0, slo=Slo(2.0, 0.1)), STAGE, None)
    assert late.slo.ttlt_s == 0.001
    assert not late.slo.whole


def test_what_follows_a_stage_at_least_is_taken_off_its_budget() -> None:
    seen = outlook()
    low = Need(20.0, 1.0, 0.0, 0.0, 500.0, 30.0, 2.0)
    forecast = Forecast(low, low._replace(own_tokens=28.0), low)
    seen.profiles.forecast = lambda *state: forecast  # type: ignore[method-assign]
    made = seen.arrived(staged("a", slo_stated=False), STAGE, 10.0)
    assert made.slo.ttlt_s == 10.0 - 2.0 - 500 / 1000 - (30 - 8) * 0.0625
    assert made.job is not None
    assert (made.job.output_tokens, made.job.output_tokens_p90, made.job.future_stages) == (28.0, 20.0, 1.0)


def test_a_job_hears_of_each_end_of_its_stages() -> None:
    mesh = Mesh("w1")
    outlook = mesh.agent._state.job_outlook
    for name in ("r1", "r2"):
        mesh.play(RequestReceived(request(name), job="j", job_budget_s=30.0))
    mesh.receive("alone")
    assert len(outlook) == 3
    for name in ("r1", "alone", "r2"):
        mesh.play(ClientLeft(name))
    assert len(outlook) == 1
    assert outlook._stages == {}
