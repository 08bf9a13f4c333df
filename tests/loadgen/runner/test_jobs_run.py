"""Jobs in a closed loop against a real HTTP server: order, loss, score, resumption, and one process for each job."""

import asyncio
from collections.abc import AsyncIterator
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas_loadgen import report
from hmas_loadgen.compare import jobs_table
from hmas_loadgen.output import RunFolder, load_run, summary
from hmas_loadgen.plan import Api, Lengths, LoadPlan, Target
from hmas_loadgen.runner.fleet import dealt
from hmas_loadgen.runner.openloop import JOB_LOST
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.traces.row import Trace, TraceCall, TraceRow
from tests.loadgen.runner.openai_server import FakeEngine, fake_engine

SLO = Slo(4.0, 0.5)
SHAPE = ((), (0,), (0,), (1, 2))  # a plan, two at once, a merge


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with fake_engine() as server:
        yield server


def jobs(count: int, *, outside_s: float = 0.0, budget_s: float | None = 30.0, gap_s: float = 0.0) -> Trace:
    rows = [
        TraceRow(
            arrival_s=job * gap_s,
            input_tokens=9,
            output_tokens=3,
            slo=SLO,
            call=TraceCall(
                job=f"j{job}",
                template=f"t{job % 2}",
                number=number,
                after=after,
                outside_s=outside_s if after else 0.0,
                budget_s=budget_s,
                messages=({"role": "user", "content": f"j{job} {number}"},),
            ),
        )
        for job in range(count)
        for number, after in enumerate(SHAPE)
    ]
    return Trace(name="t", rows=tuple(rows), span_s=max(0.1, count * gap_s))


def plan(engine: FakeEngine, trace: Trace, target: dict[str, Any] | None = None, **fields: Any) -> LoadPlan:
    chosen: dict[str, Any] = {"base_urls": (engine.url,), "model": "m", "lengths": Lengths.REPLAY_FIELD}
    return LoadPlan(name="p", trace=trace, target=Target(**(chosen | (target or {}))), **fields)


async def test_each_call_goes_after_those_before_it_and_the_time_outside(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, jobs(3, outside_s=0.05), {"name_jobs": True, "send_slo": True}))
    assert [r.index for r in result.records] == list(range(12))
    for job in range(3):
        calls = result.records[4 * job : 4 * job + 4]
        assert {call.outcome for call in calls} == {Outcome.FINISHED}
        for call, after in zip(calls, SHAPE, strict=True):
            assert all(call.scheduled_s >= calls[i].last_token_s + 0.05 for i in after)  # type: ignore[operator]
    assert {s.body["messages"][0]["content"] for s in engine.seen} == {f"j{j} {n}" for j in range(3) for n in range(4)}
    named = {(s.headers["x-hmas-job"].split("-")[-1], s.headers["x-slo-job-ms"]) for s in engine.seen}
    assert named == {(f"j{job}", "30000") for job in range(3)}
    assert result.jobs()[""].offered == 3
    assert result.jobs()[""].goodput == 1.0


async def test_nothing_is_said_of_jobs_by_default(engine: FakeEngine) -> None:
    await run_load(plan(engine, jobs(1)))
    assert not [name for seen in engine.seen for name in seen.headers if "job" in name or "slo" in name]


async def test_a_job_whose_call_fails_is_lost_and_sends_no_more(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, jobs(2), {"body": {"behaviour": "refuse"}}))
    assert len(engine.seen) == 2
    assert [r.error for r in result.records] == ["429 pool_queue_full", JOB_LOST, JOB_LOST, JOB_LOST] * 2
    score = result.jobs()[""]
    assert (score.offered, score.calls, score.lost, score.on_time) == (2, 8, 2, 0)
    assert isnan(score.time_p50_s)
    assert result.score().offered == 8


async def test_jobs_are_late_by_their_budget_and_without_one_by_their_calls(engine: FakeEngine) -> None:
    engine.gap_s = 0.02
    late = await run_load(plan(engine, jobs(2, budget_s=0.05)))
    assert (late.jobs()[""].on_time, late.jobs()[""].lost) == (0, 0)
    assert late.jobs()[""].time_p50_s > 0.0
    kept = await run_load(plan(engine, jobs(2, budget_s=None)))
    assert kept.jobs()[""].on_time == 2


async def test_what_is_cut_off_is_told_and_its_job_is_sent_again_as_a_whole(engine: FakeEngine, tmp_path: Path) -> None:
    trace, stop = jobs(4, gap_s=0.3), asyncio.Event()
    wanted = plan(engine, trace, {"body": {}})
    engine.gap_s = 0.05
    with RunFolder(tmp_path, wanted) as output:

        def on_record(record: Any) -> None:
            output.add(record)
            if record.index == 5:
                stop.set()

        output.finish(await run_load(wanted, on_record=on_record, stop=stop))
    cut = load_run(tmp_path)
    assert not cut.valid
    assert {r.job for r in cut.records} < {r.call.job for r in trace.rows if r.call}
    assert len(cut.records) % 4 == 0  # a job that began is told as a whole
    score = cut.jobs()[""]
    assert score.lost
    engine.gap_s = 0.0
    sent = len(engine.seen)
    with RunFolder(tmp_path, wanted, resume=True) as output:
        result = await run_load(wanted, on_record=output.add, earlier=output.earlier)
        output.finish(result)
    assert len(engine.seen) - sent == 16 - 4 * (score.offered - score.lost)
    whole = load_run(tmp_path)
    assert [r.index for r in whole.records] == list(range(16))
    assert (whole.jobs()[""].offered, whole.jobs()[""].lost) == (4, 0)


async def test_report_summary_and_table_show_jobs(engine: FakeEngine) -> None:
    result = await run_load(plan(engine, jobs(4)))
    assert set(summary(result)["jobs"]) == {"all", "t0", "t1"}
    page = report.render([result], "p")
    assert "job goodput" in page
    assert "100.0%" in page
    table = jobs_table(result)
    assert table is not None
    assert table.row_count == 3
    alone = await run_load(
        plan(engine, Trace(name="r", rows=(TraceRow(arrival_s=0, input_tokens=9, output_tokens=1),)))
    )
    assert jobs_table(alone) is None
    assert summary(alone)["jobs"] == {}
    assert "job goodput" not in report.render([alone], "p")


def test_all_calls_of_a_job_go_to_one_process() -> None:
    parts = dealt(list(enumerate(jobs(5).rows)), 2)
    assert [len(part) for part in parts] == [12, 8]
    homes = [{row.call.job for _, row in part if row.call} for part in parts]
    assert homes == [{"j0", "j2", "j4"}, {"j1", "j3"}]


def test_workflows_are_chats() -> None:
    with pytest.raises(ValueError, match="--api chat"):
        LoadPlan(name="p", trace=jobs(1), target=Target(base_urls=("http://x",), model="m", api=Api.COMPLETIONS))
