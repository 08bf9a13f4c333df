"""What a gateway tells workers of jobs."""

from dataclasses import replace

from hmas.contracts.job import LinkedBy, PrefixChain, Stage
from hmas.contracts.request import Request, Slo
from hmas.gateway.agent.config import JobOutlookConfig
from hmas.gateway.agent.jobs.job_outlook import JobOutlook
from tests.builders.requests import client_request

TPOT_S, SPEED = 0.02, 1000.0


def outlook(**changes: float) -> JobOutlook:
    return JobOutlook(JobOutlookConfig(**changes), prefill_tokens_per_s=SPEED, tpot_s=TPOT_S)  # type: ignore[arg-type]


def request(request_id: str, arrival_s: float, slo: Slo | None = None) -> Request:
    return client_request(
        request_id, tenant="t", slo=slo or Slo(4.0, 0.1), slo_stated=slo is not None, arrival_s=arrival_s,
        prefix=PrefixChain((5,), (0,)),
    )  # fmt: skip


def stage(job: str, index: int = 0) -> Stage:
    return Stage(job=job, index=index, parent="", linked=LinkedBy.DECLARED)


def ran(seen: JobOutlook, job: str, at_s: float, outputs: tuple[int, ...], budget_s: float | None = None) -> float:
    """Lets a job pass whose stages take 1 s each, with 2 s between them; returns when it ended."""
    for i, output in enumerate(outputs):
        seen.arrived(request(f"{job}-{i}", at_s), stage(job, i), budget_s)
        seen.settled(at_s + 1.0, f"{job}-{i}", output)
        at_s += 3.0
    return at_s - 2.0


def test_the_budget_runs_from_the_first_request() -> None:
    seen = outlook()
    first = seen.arrived(request("a", 10.0), stage("j"), 30.0)
    assert first.job is not None
    assert (first.job.index, first.job.left_s) == (0, 30.0)
    assert first.slo == Slo(4.0, 0.1, 30.0, True)
    assert first.slo_stated
    seen.settled(15.0, "a", 10)
    second = seen.arrived(request("b", 16.0), stage("j", 1), None)
    assert second.job is not None
    assert (second.job.index, second.job.left_s) == (1, 24.0)
    late = seen.arrived(request("c", 99.0), stage("j", 2), None)
    assert late.job is not None
    assert late.job.left_s == -59.0
    assert late.slo.ttlt_s is not None
    assert 0.0 < late.slo.ttlt_s < 0.01


def test_what_follows_is_taken_off_a_stages_due_time_once_jobs_have_ended() -> None:
    seen = outlook(silent_s=60.0)
    for i in range(9):
        ended_s = ran(seen, f"old{i}", 10.0 * i, (50, 100))
    seen.tick(ended_s + 59.0)
    unknown = seen.arrived(request("x", 150.0), stage("x"), 30.0).job
    seen.tick(ended_s + 120.0)
    known = seen.arrived(request("y", 220.0), stage("y"), 30.0)
    assert unknown is not None
    assert known.job is not None
    assert (known.job.output_tokens, known.job.future_output_tokens, known.job.future_outside_s) == (50, 100, 2.0)
    assert known.slo.ttlt_s is not None
    assert abs(known.slo.ttlt_s - (30.0 - 2.0 - 100 / SPEED - 100 * TPOT_S)) < 1e-9


def test_a_stated_slo_holds_beside_the_budget() -> None:
    stated = Slo(0.5, 0.05)
    told = outlook().arrived(request("a", 0.0, stated), stage("j"), 30.0)
    assert told.slo == replace(stated, ttlt_s=30.0)


def test_a_named_job_without_a_budget_keeps_its_slo() -> None:
    sent = request("a", 0.0)
    told = outlook().arrived(sent, stage("j"), None)
    assert told == replace(sent, job=told.job)
    assert told.job is not None
    assert told.job.left_s is None


def test_jobs_are_bounded_and_forgotten() -> None:
    seen = outlook(max_jobs=10)
    for i in range(100):
        seen.arrived(request(f"r{i}", float(i)), stage(f"j{i}"), 10.0)
    assert len(seen) == 20
    for i in range(100):
        seen.settled(100.0, f"r{i}", 5)
    seen.tick(1000.0)
    assert len(seen) == 0
