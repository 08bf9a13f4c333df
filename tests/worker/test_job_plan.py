"""Which jobs with a budget are kept: Moore and Hodgson over whole jobs."""

from dataclasses import replace

from hmas.contracts.job import JobFacts
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.job_plan import JobPlan, JobPlanConfig, StagePlan
from tests.worker.builders import entry, request


def stage(seq: int, job: str, index: int = 0) -> QueueEntry:
    facts = JobFacts(job=job, index=index, left_s=10.0)
    return entry(seq, replace(request(f"r{seq}"), job=facts))


def given_up(stages: list[StagePlan], others: tuple[tuple[float, float], ...] = (), crowd: float = 1.0) -> set[str]:
    plan = JobPlan(JobPlanConfig(crowd=crowd))
    plan.plan(0.0, 1.0, stages, others)
    return {each.entry.request.id for each in stages if plan.gives_up(each.entry)}


def test_jobs_that_all_fit_are_kept() -> None:
    rows = [StagePlan(stage(i, f"j{i}"), 2.0 * i, 1.0, 1.0, 1.0) for i in range(4)]
    assert given_up(rows) == set()


def test_the_job_with_the_most_left_is_given_up_with_all_its_stages() -> None:
    rows = [
        StagePlan(stage(1, "big", 0), 1.0, 1.0, 8.0, 1.0),
        StagePlan(stage(2, "big", 1), 1.0, 1.0, 7.0, 1.0),
        StagePlan(stage(3, "small"), 2.0, 1.0, 0.0, 1.0),
    ]
    assert given_up(rows) == {"r1", "r2"}
    assert given_up([row._replace(price_factor=0.01) if row.following_work else row for row in rows]) == {"r3"}


def test_what_follows_is_counted_once_for_calls_side_by_side() -> None:
    rows = [StagePlan(stage(i, "wide", i), 1.0, 1.0, 3.0 - i, 1.0) for i in range(4)]
    last = StagePlan(stage(9, "last"), 4.0, 9.0, 0.0, 1.0)
    assert given_up([*rows, last]) == set()  # 4 s of work before 4 s; 10 s if what follows counted each time
    assert given_up([*rows, last], crowd=1.1) == {"r9"}


def test_a_job_that_cannot_be_in_time_takes_no_room() -> None:
    rows = [StagePlan(stage(1, "late"), -0.1, 50.0, 0.0, 1.0), StagePlan(stage(2, "next"), 0.0, 1.0, 0.0, 1.0)]
    assert given_up(rows) == {"r1"}


def test_requests_without_a_job_leave_less_room() -> None:
    rows = [StagePlan(stage(1, "a"), 1.0, 2.0, 0.0, 1.0), StagePlan(stage(2, "b"), 3.0, 1.0, 0.0, 1.0)]
    assert given_up(rows) == set()
    assert given_up(rows, others=((2.5, 2.0),)) == {"r1"}
    assert given_up(rows, others=((3.5, 2.0),)) == set()


def test_a_tenant_ahead_of_others_gives_up_its_jobs_first() -> None:
    small = [StagePlan(stage(i, f"s{i}"), 2.0, 0.6, 0.0, 1.0) for i in range(3)]
    large = StagePlan(stage(9, "x"), 2.0, 2.0, 0.0, 1.0)
    last = StagePlan(stage(10, "z"), 2.1, 0.6, 0.0, 1.0)
    assert given_up([*small, large, last]) == {"r9"}
    assert "r9" not in given_up([*(row._replace(yields=True) for row in small), large, last])


def staged(seq: int, job: str, index: int = 0) -> QueueEntry:
    return entry(seq, replace(request(f"r{seq}"), job=JobFacts(job=job, index=index, left_s=9.0)))


def test_a_job_is_all_its_stages_and_what_follows_the_last() -> None:
    """The first job waits with two stages, 1 + 2 of work and 4 that follow the later one: `crowd` times 7 must have
    room before the second job starts at 20."""
    plan = JobPlan(JobPlanConfig(crowd=1.5))
    rows = [
        StagePlan(staged(1, "a", 3), 30.0, 2.0, 4.0, 1.0),
        StagePlan(staged(2, "a", 2), 10.0, 1.0, 9.0, 1.0),
        StagePlan(staged(3, "b"), 20.0, 3.0, 0.0, 1.0),
    ]
    for begin_s, given_up in ((0.0, set()), (9.5, set()), (9.75, {"a"}), (10.0, {"a"}), (10.25, {"a"})):
        plan.plan(begin_s, 1.0, rows, ())
        assert plan._given_up == given_up
    rows = [row._replace(yields=row.entry.seq == 3) for row in rows]
    plan.plan(9.75, 1.0, rows, ())
    assert plan._given_up == {"b"}, "whose tenant is ahead, gives up first"
    plan.plan(4.0, 1.0, rows, ((20.0, 5.5), (20.5, 100.0)))
    assert plan._given_up == set()
    plan.plan(4.0, 1.0, rows, ((20.0, 5.75), (20.5, 100.0)))
    assert plan._given_up == {"b"}
    assert plan.gives_up(rows[2].entry)
    assert not plan.gives_up(entry(9))


def test_a_plan_is_due_after_its_time_while_stages_wait() -> None:
    plan = JobPlan(JobPlanConfig(every_s=0.25))
    assert not plan.due(0.0)
    stage = staged(1, "a")
    plan.add(stage)
    assert plan.due(0.0)
    plan.plan(1.0, 1.0, (), ())
    assert not plan.due(1.125)
    assert plan.due(1.25)
    assert len(plan) == 1
    plan.remove(stage)
    plan.remove(stage)
    assert not plan.due(9.0)
