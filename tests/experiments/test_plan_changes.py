"""Live changes of engines that were foretold: what is planned, judged and written."""

from contextlib import nullcontext
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.plan_changes import CATALOGUE, STUDY, ChangeOutcome, cells, goals, plan_of, planned_changes, rows_of
from experiments.study import Options
from experiments.writer import put, write
from hmas.contracts.pool_plan import Budget
from hmas.laws.plan_steps import plan_fault


def outcome(run: str, predicted: float, after: float, abstained: str = "") -> ChangeOutcome:
    return ChangeOutcome(
        run=run, before=0.5, simulated=0.5, predicted=predicted, after=after, abstained=abstained, took_s=12.0,
        requests=500,
    )  # fmt: skip


def test_six_changes_lead_from_one_plan_to_the_next() -> None:
    changes = planned_changes(60)
    assert len({each.name for each in changes}) == 6
    assert all(a.after == b.before for a, b in pairwise(changes))
    for each in changes:
        assert plan_fault([plan_of(each.after)], CATALOGUE, [Budget("h100", 6)]) == ""
    assert changes[3].name == "azure-like at 8/s, 1 m-tp2, 1 m-tp1 to 1 m-tp2"


def test_what_was_made_is_read_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.plan_changes.running", lambda folder, first: nullcontext())
    options, made = Options(seconds=60, out=tmp_path), outcome(planned_changes(60)[0].name, 0.7, 0.72)
    found = {planned_changes(60)[0]: asdict(made)}
    assert rows_of(options, found) == [made]
    assert list(cells(options, found)) == [list(planned_changes(60)[1:])]


def test_an_abstention_is_not_right(tmp_path: Path) -> None:
    made = [outcome(str(i), 0.7, 0.72, "it misses" if i < 2 else "") for i in range(6)]
    assert [goal.met for goal in goals(made)] == [False]
    assert [goal.met for goal in goals([outcome(str(i), 0.7, 0.72) for i in range(6)])] == [True]
    assert [goal.met for goal in goals([outcome(str(i), 0.7, 0.9) for i in range(6)])] == [False]
    assert [goal.met for goal in goals(made[1:])] == [None]
    put({"plan-changes.json": [asdict(each) for each in made]}, tmp_path, STUDY.name)
    text = write(STUDY, Options(seconds=60, out=tmp_path), {})[0].read_text()
    assert "| 5 | 500 | 0.500 | 0.500 | 0.700 | 0.720 | -2.0 | 12 |  |" in text
