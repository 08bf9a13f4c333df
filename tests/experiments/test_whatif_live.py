"""Live switches that were foretold: what is planned, kept, counted and written."""

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from experiments.study import Options
from experiments.whatif_live import STUDY, LiveOutcome, cells, counted, goals, plans, repeated, rows_of
from experiments.writer import put, write


def outcome(run: str, before: float, predicted: float, after: float, abstained: str = "") -> LiveOutcome:
    return LiveOutcome(
        run=run, before=before, simulated=before, predicted=predicted, after=after, abstained=abstained,
        unstated=before, unstated_abstained="", requests=500,
    )  # fmt: skip


def page_of_rows(made: list[LiveOutcome], out: Path) -> str:
    """Writes the page from rows that lie there."""
    put({"whatif-live.json": [asdict(each) for each in made]}, out, STUDY.name)
    return write(STUDY, Options(seconds=60, out=out), {})[0].read_text()


def test_twenty_different_switches_are_planned() -> None:
    names = [run.name for run in plans()]
    assert len(names) == len(set(names)) == 20
    assert all(run.before is not run.after for run in plans())


def test_what_was_made_is_read_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.whatif_live.running", lambda folder: nullcontext())
    options, made = Options(seconds=60, out=tmp_path), outcome(plans()[0].name, 0.5, 0.7, 0.72)
    found = {plans()[0]: asdict(made)}
    assert rows_of(options, found) == [made]
    assert list(cells(options, found)) == [list(plans()[1:])]
    assert list(cells(replace(options, seconds=30), found)) == [list(plans(30))]  # another length is another switch
    assert list(cells(options, dict.fromkeys(plans(), asdict(made)))) == []


def test_only_what_was_foretold_is_right_or_wrong(tmp_path: Path) -> None:
    made = [
        outcome("a", 0.5, 0.7, 0.72), outcome("b", 0.5, 0.7, 0.5), outcome("c", 0.9, 0.9, 0.93),
        outcome("d", 0.5, 0.9, 0.9, "it misses"),
    ]  # fmt: skip
    assert counted(made) == {"made": 4, "told": 3, "right": 2, "moves": 2}
    text = page_of_rows(made, tmp_path)
    assert "4 of 20 switches were made" in text
    assert text.count("not measured yet") == 2
    assert "| b | 500 | 0.500 | 0.500 | 0.700 | 0.500 | +20.0 |  | +0.0 |" in text
    assert "2 foretold within 5 points, 0 abstained" in text


def test_all_switches_are_judged_and_an_abstention_is_not_right() -> None:
    made = [outcome(str(i), 0.5, 0.7, 0.7, "it misses" if i < 3 else "") for i in range(20)]
    assert [goal.met for goal in goals(made)] == [False, True]
    assert [goal.met for goal in goals([replace(each, abstained="") for each in made])] == [True, True]
    assert [goal.met for goal in goals(made[1:])] == [None, None]


def test_the_same_traffic_under_the_same_order_tells_how_much_chance_there_is(tmp_path: Path) -> None:
    first, second = plans()[0], plans()[2]  # both begin with the same order
    assert (first.before, first.rate, first.seed) == (second.before, second.rate, second.seed)
    made = [outcome(first.name, 0.5, 0.7, 0.72), outcome(second.name, 0.53, 0.7, 0.9)]
    assert repeated(made) == [pytest.approx(0.03)]
    assert repeated(made[:1]) == []
    assert "differed by 3.0 points in the median of 1 cases" in page_of_rows(made, tmp_path)
