"""What a gateway remembers of jobs for those who look on, and what is made of it."""

from dataclasses import replace

import pytest
from rich.console import Console

from hmas.contracts.job import MAX_TOLD_JOBS, JobsReply, LinkedBy, PrefixChain, Stage
from hmas.gateway import jobs
from hmas.gateway.jobs import JobBook
from hmas.operator.jobs import merged, render_jobs, templates
from hmas.wire.codec import decode, encode
from tests.worker.builders import request

CHAIN = PrefixChain(nodes=(0xAB, 0xCD), ends=(5, 9))


def stage(job: str, index: int = 0) -> Stage:
    return Stage(job=job, index=index, parent="", linked=LinkedBy.NEW)


def test_calls_of_a_job_are_added_up() -> None:
    book = JobBook()
    made = replace(request("r1", tenant="acme", prompt_tokens=100), prefix=CHAIN)
    book.began(10.0, made, stage("j"))
    book.began(11.0, replace(made, id="r2"), stage("j", 1))
    (row,) = book.report(12.0, "g").jobs
    assert (row.calls, row.running, row.begun_age_s, row.quiet_s) == (2, 2, 2.0, 0.0)
    book.ended(13.0, "j", 3.0, True, 20, 40)
    book.ended(14.0, "j", 3.0, False, 5, 0)
    book.ended(14.0, "j", 3.0, True, 5, 0)  # nothing of it is open
    book.ended(14.0, "unknown", 3.0, True, 5, 0)
    told = book.report(15.0, "g")
    (row,) = told.jobs
    assert (row.running, row.failed, row.prompt_tokens, row.output_tokens, row.cached_tokens) == (0, 1, 200, 25, 40)
    assert (row.template, row.request_id, row.busy_s, row.quiet_s) == ("00000000000000ab", "r2", 6.0, 1.0)
    assert decode(JobsReply, encode(told)) == told


def test_the_book_is_bounded_and_forgets_the_quietest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 3)
    book = JobBook()
    for name in ("a", "b", "c", "a", "d"):
        book.began(1.0, request("r" + name), stage(name))
    assert [row.job for row in book.report(1.0, "g").jobs] == ["d", "a", "c"]
    monkeypatch.setattr(jobs, "MAX_TOLD_JOBS", 2)
    assert book.report(1.0, "g").left_out == 1
    assert MAX_TOLD_JOBS < 65_536


def test_a_job_whose_calls_came_to_two_gateways_is_one() -> None:
    one, other = JobBook(), JobBook()
    made = replace(request("r1", prompt_tokens=100), prefix=CHAIN)
    one.began(0.0, made, stage("j"))
    one.ended(2.0, "j", 2.0, True, 10, 60)
    other.began(3.0, replace(made, id="r2"), stage("j", 1))
    other.ended(8.0, "j", 5.0, True, 20, 90)
    other.began(9.0, request("r3"), stage("k"))
    rows = merged([one.report(10.0, "g1"), other.report(10.0, "g2")])
    job = next(row for row in rows if row.job == "j")
    assert (job.calls, job.begun_age_s, job.quiet_s, job.cached_tokens, job.request_id) == (2, 10.0, 2.0, 150, "r2")
    slowest, running = templates(rows)
    assert (slowest.template, slowest.mean_s, slowest.most_s) == ("00000000000000ab", 8.0, 8.0)
    assert (running.running, running.mean_s) == (1, -1.0)
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(render_jobs(rows, 10))
    assert "2 jobs of 2 templates; 1 have a call in flight" in captured.get()
    assert "75 %" in captured.get()


def test_templates_of_jobs_with_one_call_come_last() -> None:
    book = JobBook()
    for name, template, calls, took_s in (("chat", 0xC, 1, 9.0), ("loop", 0xA, 2, 2.0), ("slower loop", 0xB, 2, 4.0)):
        for call in range(calls):
            book.began(
                0.0,
                replace(request(f"{name}{call}"), prefix=PrefixChain(nodes=(template,), ends=(5,))),
                stage(name, call),
            )
            book.ended(took_s, name, took_s, True, 5, 0)
    order = [(row.calls, row.mean_s) for row in templates(merged([book.report(10.0, "g")]))]
    assert order == [(2, 4.0), (2, 2.0), (1, 9.0)]


def test_a_job_is_over_once_a_minute_after_its_last_call() -> None:
    book = JobBook()
    for name, budget_s in (("a", 5.0), ("b", None)):
        book.began(0.0, request("r" + name), stage(name), budget_s)
    assert book.running == 2
    book.ended(4.0, "a", 4.0, True, 5, 0)
    book.began(6.0, request("ra2"), stage("a", 1))
    book.ended(8.0, "b", 8.0, False, 0, 0)
    assert book.over(67.0) == []
    assert book.over(68.0) == [jobs.EndedJob(8.0, 1, 1, None)]
    book.ended(100.0, "a", 94.0, True, 5, 0)
    assert book.running == 0
    assert book.over(159.0) == []
    assert book.over(160.0) == [jobs.EndedJob(100.0, 2, 0, 5.0)]
    book.began(170.0, request("ra3"), stage("a", 2))
    book.ended(171.0, "a", 1.0, True, 5, 0)
    assert book.over(999.0) == []
    assert book.running == 0


def test_forgotten_jobs_are_neither_running_nor_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOBS", 2)
    book = JobBook()
    for name in ("a", "b", "c", "d"):
        book.began(0.0, request("r" + name), stage(name))
        if name != "a":
            book.ended(1.0, name, 1.0, True, 1, 0)
    assert book.running == 0
    book.ended(2.0, "a", 1.0, True, 1, 0)
    assert len(book.over(100.0)) == 2
