"""The page of the live ablation says what its figures say, and no more."""

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.live.measure import Setup, trace_of
from experiments.live.page import STUDY, goals, page_of
from experiments.pages.template import render
from experiments.study import Options
from experiments.writer import write
from hmas.laws.slo import default_slo

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def document() -> Any:
    return json.loads((RESULTS / "live-cognition.json").read_text())


def test_the_page_is_that_of_its_figures(tmp_path: Path) -> None:
    (tmp_path / "live-cognition.json").write_text((RESULTS / "live-cognition.json").read_text())
    page, facts = write(STUDY, Options(out=tmp_path, pages_only=True), {})
    for path in (page, facts):
        assert path.read_text() == (RESULTS / path.name).read_text()


@pytest.mark.parametrize(
    ("shipped", "said"),
    [
        ((0.6, 0.7, 0.8), "shipped is ahead in every seed"),
        ((0.6, 0.7, 0.4), "nothing: the seeds do not agree"),
        ((0.6, 0.7, 0.5), "nothing: the seeds do not agree"),
        ((0.1, 0.2, 0.3), "shipped is behind in every seed"),
    ],
)
def test_a_difference_is_told_only_if_all_seeds_agree(shipped: tuple[float, ...], said: str) -> None:
    facts = document()
    for run in facts["runs"]:
        run["on_time"] = dict(zip(facts["setup"]["seeds"], shipped, strict=True))[run["seed"]]
        if run["perception"] != "shipped":
            run["on_time"] = 0.5
    (line,) = [
        line for line in render(STUDY.page, **page_of(facts)).splitlines() if line.startswith("| shipped - none")
    ]
    assert line.endswith(f"| {said} |")


def test_only_the_type_tells_the_slo() -> None:
    rows = trace_of(Setup(), 1).rows
    assert len({row.task for row in rows}) == 13
    for row in rows:
        assert row.task is not None
        assert row.slo == default_slo(row.task)
    assert trace_of(Setup(), 2).rows != rows


def test_perception_and_costs_are_held_against_their_goals() -> None:
    facts = document()
    for run in facts["runs"]:
        run |= {"perception_mb": 400.0, "by_catboost": 0.96, "errors": {"catboost ttft": 0.1, "linear ttft": 0.2}}
    assert [goal.met for goal in goals(facts["runs"])] == [True, True, True]
    own = next(run for run in facts["runs"] if run["perception"] == "shipped")
    own |= {"perception_mb": 501.0, "by_catboost": 0.94}
    for run in facts["runs"]:
        run["errors"]["linear ttft"] = 0.05
    assert [goal.met for goal in goals(facts["runs"])] == [False, False, False]
