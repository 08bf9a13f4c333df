"""A study's cells are computed once each, later ones by what came of earlier ones; its page, rows and options."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import pytest

from experiments.__main__ import STUDIES, main, options_of
from experiments.execute import fill
from experiments.pages.goal import Goal
from experiments.study import Figures, Finished, Options, Study
from experiments.writer import write
from hmas_lab.sim.cells import CellStore
from hmas_lab.sim.stored import cell_key
from tests.house.repository import written


@dataclass(frozen=True)
class Square:
    number: int

    def key(self) -> str:
        return cell_key(self)


def cells(options: Options, found: Finished) -> Iterator[Sequence[Square]]:
    """The numbers up to `seeds`, and then the square of the last."""
    yield [Square(n) for n in options.numbers]
    last = found.get(Square(options.seeds))
    yield [Square(last["square"])] if last else []


def compute(cell: Square, more: int) -> Figures:
    return {"square": cell.number**2 + more}


@pytest.fixture
def study(tmp_path: Path) -> Study[Square, Figures]:
    (tmp_path / "page.md.j2").write_text("# {{ title }}\n{{ goals|join }}\n")
    return Study(
        name="squares",
        about="Squares numbers.",
        template=tmp_path / "page.md.j2",
        cells=cells,
        compute=compute,
        given=lambda cell, options, found: (int(options.seconds),),
        code=lambda cell: "code",
        rows=lambda options, found: [run for n in options.numbers if (run := found.get(Square(n)))],
        goals=lambda rows: [Goal("all are there", f"{len(rows)}", len(rows) == 3)],
        values=lambda rows, options, found: {"title": f"{len(rows)} squares"},
        also=lambda rows, options, found: {"more.md": "More", "none.json": None},
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_a_later_batch_follows_from_an_earlier_one_and_nothing_is_computed_twice(
    study: Study[Square, Figures], tmp_path: Path, processes: int
) -> None:
    store, told = CellStore(tmp_path / "cells", study.code), list[str]()
    options = Options(seeds=3, seconds=0.0, processes=processes)
    fill(study, options, store, lambda done, total, text: told.append(text))
    assert (store.get(Square(9)) or {})["square"] == 81
    assert len([text for text in told if text.startswith("Square")]) == 4
    told.clear()
    fill(study, replace(options, seconds=5.0), store, lambda done, total, text: told.append(text))
    assert set(told) == {"taken from earlier runs"}


def test_the_page_names_its_command_and_its_rows_lie_beside_it(study: Study[Square, Figures], tmp_path: Path) -> None:
    found = {Square(1): {"square": 1}, Square(2): {"square": 4}}
    page, rows, more = write(study, Options(seeds=3, out=tmp_path / "out"), found)
    footer = "\n\n<!-- Written by `python -m experiments squares`; do not edit. -->\n"
    assert page.read_text() == "# 2 squares\nall are there: 2: **missed**" + footer
    assert json.loads(rows.read_text()) == [{"square": 1}, {"square": 4}]
    assert (rows.name, more.name, more.read_text()) == ("squares.json", "more.md", "More" + footer)
    assert not (tmp_path / "out" / "none.json").exists()


def test_a_study_reads_the_options_that_it_takes(
    study: Study[Square, Figures], capsys: pytest.CaptureFixture[str]
) -> None:
    assert options_of(study, []) == study.defaults
    assert options_of(study, ["--seeds", "2", "--pages-only"]) == replace(study.defaults, seeds=2, pages_only=True)
    for wrong in (["--seeds", "0"], ["--seconds", "20"]):
        with pytest.raises(SystemExit):
            options_of(study, wrong)
    assert "unrecognized arguments: --seconds" in capsys.readouterr().err


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_is_found_by_its_name_and_has_its_template(name: str) -> None:
    study: Study[object, object] = import_module(STUDIES[name]).STUDY
    assert study.name == name
    assert study.page.is_file() == (study.values is not None)


def test_what_is_missing_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["jobs-linking", "--data", str(tmp_path)])
    assert ended.value.code == 2
    assert "jobs-linking: this needs recorded workflows: give --data FOLDER with agentic/" in capsys.readouterr().err


def test_every_study_has_a_name_on_the_command_line() -> None:
    made = {
        path.removesuffix(".py").replace("/", ".")
        for path, text in written(".py", below=("experiments/",))
        if re.search(r"^STUDY\b.* = ", text, re.MULTILINE)
    }
    assert made == set(STUDIES.values())
