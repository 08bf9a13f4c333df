"""The experiment about forecasts of stages: how workflows are read, split and scored, and its page."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from experiments.forecast.measure import BY_TASK, PAPER, Corpus, Figure, calibration_error, paper_split, pinball, table
from experiments.forecast.stages import RecordedStage, read_stages
from experiments.report.jobs_forecast import goals_of, write_page
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


def test_stages_know_what_is_left_and_nothing_of_their_own_answer(jobs: list[list[RecordedStage]]) -> None:
    first, last = jobs[0]
    assert (first.prompt_tokens, first.calls_tool, last.calls_tool) == (1410, True, False)
    assert first.left == (last.prompt_tokens, 50)
    assert last.left == (0, 0)
    assert last.answered == 30
    assert first.numbers != last.numbers


def test_in_the_papers_split_the_last_records_of_each_kind_are_scored(jobs: list[list[RecordedStage]]) -> None:
    corpus = Corpus.of(jobs)
    scored = paper_split(corpus)
    assert 0.19 < scored.mean() < 0.23
    runs = np.array([stage.order[0] for stage in corpus.stages])
    assert set(runs[scored]) == {3}
    assert set(corpus.tasks[scored]) < set(corpus.tasks[~scored])


def test_the_table_speaks_of_tasks_that_it_has_not_seen(jobs: list[list[RecordedStage]]) -> None:
    found = table(jobs, lambda stage: stage.order[1] != "3", medians=True)
    apart = [stage for job in jobs for stage in job if stage.order[1] == "3"]
    assert set(found) == set(map(id, apart))
    assert found[id(apart[0])][0] > found[id(apart[-1])][0]


def test_scores() -> None:
    assert pinball(np.array([2.0]), np.array([1.0]), 0.9) == pytest.approx(0.9)
    assert pinball(np.array([1.0]), np.array([2.0]), 0.9) == pytest.approx(0.1)
    assert calibration_error(np.array([0.25, 0.25, 0.25, 0.25]), np.array([1, 0, 0, 0])) == 0.0
    assert calibration_error(np.array([0.95, 0.95]), np.array([0, 0])) == pytest.approx(0.95)


def test_the_page_says_what_was_missed(tmp_path: Path) -> None:
    def figure(forecast: str, split: str, system: str, metric: str, value: float, corpus: str = "all") -> Figure:
        return Figure(forecast=forecast, split=split, system=system, corpus=corpus, metric=metric, value=value, count=7)

    figures = [
        figure("left", BY_TASK, name, "pinball", loss) for name, loss in (("Eq. 8's medians", 1.0), ("trees", 0.7))
    ]
    figures += [figure("left", BY_TASK, "gateway", "pinball", 0.8)]
    figures += [figure("left", BY_TASK, name, "covered", 0.9) for name in ("trees", "gateway")]
    for split, area in ((BY_TASK, 0.8), (PAPER, 0.93)):
        figures += [figure("tool", split, name, "AUC", area, TAU_BENCH) for name in ("ours", "bag of words")]
        figures.append(figure("tool", split, "ours", "ECE", 0.02))
        figures += [
            figure("length", split, name, "MAE", error)
            for name, error in (("ours", 60.0), ("Magnus-like", 80.0), ("MLP on text vectors", 80.0))
        ]
    reached = {goal.words: goal.met for goal in goals_of(figures)}
    assert reached[f"pinball loss of what is left ≥ 25 % below Eq. 8's medians (trees, {BY_TASK})"]
    assert reached[f"pinball loss of what is left ≥ 25 % below Eq. 8's medians (gateway, {BY_TASK})"] is False
    assert reached[f"AUC of tool intent on tau-bench ≥ 0.85 ({BY_TASK})"] is False
    assert reached[f"MAE of lengths ≥ 30.0 % below MLP on text vectors ({PAPER})"] is False
    page, facts = write_page(figures, tmp_path)
    assert "**no**" in page.read_text(encoding="utf-8")
    assert len(json.loads(facts.read_text(encoding="utf-8"))) == len(figures)
