"""Jobs in a closed loop: when their calls come, how they are scored, and the bound over them."""

from itertools import product

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.engine.core.profile import builtin_profile
from hmas.sim.workload import Journey, OfferedRequest
from hmas_lab.sim.bound import job_bound
from hmas_lab.sim.jobs import JobCall, JobClients, SimJob, score_jobs
from tests.builders.requests import client_request


def call(name: str, *after: int, outside_s: float = 0.0, output: int = 100) -> JobCall:
    request = client_request(name, model="model", tenant="t", slo=Slo(60.0, 1.0), slo_stated=False)
    offered = OfferedRequest(request=request, output_tokens=output, slo=request.slo, task=TaskType.UNKNOWN)
    return JobCall(offered=offered, after=after, outside_s=outside_s)


def job(name: str, *calls: JobCall, at_s: float = 0.0, budget_s: float = 100.0) -> SimJob:
    return SimJob(id=name, template="x", interactive=True, arrival_s=at_s, budget_s=budget_s, calls=calls)


def test_a_call_comes_when_all_it_waits_for_have_ended() -> None:
    clients = JobClients([job("j", call("a"), call("b", 0), call("c", 0), call("d", 1, 2, outside_s=2.0), at_s=5.0)])
    assert [(o.id, o.request.arrival_s) for o in clients.first()] == [("a", 5.0)]
    assert [(o.id, o.request.arrival_s) for o in clients.ended(7.0, "a")] == [("b", 7.0), ("c", 7.0)]
    assert clients.ended(9.0, "b") == []
    assert [(o.id, o.request.arrival_s) for o in clients.ended(11.0, "c")] == [("d", 13.0)]


def ended(one: JobCall, at_s: float) -> Journey:
    return Journey(offered=one.offered, first_token_s=at_s - 1.0, last_token_s=at_s, outcome=Outcome.FINISHED)


def test_a_job_counts_if_its_last_call_ended_in_time() -> None:
    jobs = [job(f"j{i}", call(f"{i}a"), call(f"{i}b", 0), budget_s=10.0) for i in range(3)]
    calls = {c.offered.id: c for each in jobs for c in each.calls}
    ends = {"0a": 3.0, "0b": 10.0, "1a": 3.0, "1b": 10.5, "2a": 4.0}  # the third job's second call never came
    score = score_jobs(jobs, {n: ended(calls[n], at_s) for n, at_s in ends.items()}, dict.fromkeys(calls, 1.0))
    assert score.job_goodput == pytest.approx(1 / 3)
    assert score.wasted == pytest.approx(3 / 5)


@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_no_more_jobs_are_promised_than_the_engine_time_holds(jobs: int) -> None:
    profile = builtin_profile("tiny-emulated").with_limits(max_num_seqs=1)
    alone_s = 100 * (profile.cost.c0_s + profile.cost.c_d_s)  # about what one call of 100 tokens takes
    made = [job(f"j{i}", call(f"{i}a"), call(f"{i}b", 0), budget_s=10.0 * alone_s) for i in range(jobs)]
    assert min(jobs, 4) <= job_bound(made, profile, 1) <= min(jobs, 6)


def test_a_job_that_is_late_even_alone_does_not_count() -> None:
    profile = builtin_profile("tiny-emulated")
    made = [job(f"j{i}", call(f"{i}a", output=out), budget_s=3.0) for i, out in enumerate((10, 1000))]
    assert job_bound(made, profile, 1) == 1
    slow = [job("j", call("a"), call("b", 0, outside_s=outside_s), budget_s=6.0) for outside_s in (0.0, 5.0)]
    assert [job_bound([each], profile, 1) for each in slow] == [1, 0]


def test_the_bound_holds_for_an_order_that_was_found() -> None:
    """On one sequence, any jobs in a row that end in time are a schedule, so that the bound is no less."""
    profile = builtin_profile("tiny-emulated").with_limits(max_num_seqs=1)
    for budget_s, count in product((4.0, 8.0), (3, 6)):
        made = [job(f"j{i}", call(f"{i}a"), budget_s=budget_s) for i in range(count)]
        one_s = 100 * 0.0153 + 0.03
        assert job_bound(made, profile, 1) >= min(count, int(budget_s / one_s))
