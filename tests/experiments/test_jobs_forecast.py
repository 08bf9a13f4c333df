"""The experiment about forecasts of stages: how workflows are read, split and scored, and its page."""

import gzip
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from experiments.forecast.measure import BY_TASK, GATEWAY, MEDIANS, Figure, measure, pinball, table
from experiments.forecast.stages import RecordedStage, read_stages
from experiments.report.jobs_forecast import STUDY, goals_of
from experiments.study import Options
from experiments.writer import put, write
from hmas_loadgen.workflows.recorded import FILES, TAU_BENCH


def workflow(task: int, run: int, calls: int) -> dict[str, object]:
    steps: list[dict[str, object]] = [{"role": "user", "content": f"task {task}", "tokens": 10}]
    for _ in range(calls):
        call = {"name": "look", "arguments": "{}"}
        steps += [
            {"role": "assistant", "content": "", "tool_calls": [call], "tokens": 30},
            {"role": "tool", "name": "look", "content": "found", "tokens": 100},
        ]
    steps.append({"role": "assistant", "content": "done", "tokens": 50})
    return {"workflow_id": f"tau-airline-{task}-{run}", "question": None, "tools": ["look"], "steps": steps}


@pytest.fixture
def jobs(tmp_path: Path) -> list[list[RecordedStage]]:
    file = tmp_path / "agentic" / FILES[TAU_BENCH]
    file.parent.mkdir()
    rows = [workflow(task, run, 1 + task % 3) for run in range(4) for task in range(10)]
    file.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return read_stages(tmp_path)


def test_stages_know_what_is_left(jobs: list[list[RecordedStage]]) -> None:
    first, last = jobs[0]
    assert (first.prompt_tokens, last.output_tokens) == (1410, 50)
    assert first.left == (last.prompt_tokens, 50)
    assert last.left == (0, 0)


def test_the_table_speaks_of_tasks_that_it_has_not_seen(jobs: list[list[RecordedStage]]) -> None:
    found = table(jobs, lambda stage: stage.task.endswith(" 3"))
    apart = [stage for job in jobs for stage in job if stage.task.endswith(" 3")]
    assert [id(stage) for stage, _ in found] == list(map(id, apart))
    assert found[0][1][0] > found[-1][1][0]


def test_every_stage_is_scored_once(jobs: list[list[RecordedStage]]) -> None:
    figures = measure(jobs, [], lambda line: None)
    assert {f.count for f in figures if f.corpus == "all"} == {sum(map(len, jobs))}
    assert {f.system for f in figures} == {MEDIANS, GATEWAY}


def test_scores() -> None:
    assert pinball(np.array([2.0]), np.array([1.0]), 0.9) == pytest.approx(0.9)
    assert pinball(np.array([1.0]), np.array([2.0]), 0.9) == pytest.approx(0.1)


def test_the_page_says_what_was_missed(tmp_path: Path) -> None:
    figures = [
        Figure(split=BY_TASK, system=system, corpus="all", metric=metric, value=value, count=7)
        for system, loss in ((MEDIANS, 1.0), (GATEWAY, 0.8))
        for metric, value in (("pinball", loss), ("covered", 0.9))
    ]
    assert [goal.met for goal in goals_of(figures)] == [False, True]
    put({"jobs-forecast.json": [asdict(figure) for figure in figures]}, tmp_path, STUDY.name)
    page, facts = write(STUDY, Options(out=tmp_path, pages_only=True), {})
    assert "**no**" in page.read_text(encoding="utf-8")
    assert len(json.loads(facts.read_text(encoding="utf-8"))) == len(figures)
