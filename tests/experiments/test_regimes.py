"""The page about layouts: the controller's choice is compared with its like, and what is missing is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.regimes import REGIMES, STUDY, WORKLOAD, cells, comparisons, rows_of
from experiments.study import Options
from experiments.writer import write
from hmas_lab.sim.cells import Cell, CellStore
from hmas_lab.sim.systems import MESHES


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path, lambda cell: "code")


def finished(goodput: float) -> dict[str, Any]:
    return {"score": {"goodput_rate": goodput, "esg_rate": 100.0, "ttft_p50_s": 0.2}}


TWO = Options(seeds=2)


def cells_of_two() -> list[Cell]:
    return [cell for batch in cells(TWO, {}) for cell in batch if isinstance(cell, Cell)]


def test_every_system_is_known_and_every_run_has_a_bound() -> None:
    wanted = cells_of_two()
    assert {cell.system for cell in wanted if cell.kind == "run"} <= MESHES.keys()
    bounds = {cell for cell in wanted if cell.kind == "bound"}
    assert all(cell.bound in bounds for cell in wanted)


def test_a_choice_is_compared_with_the_same_system_mixed_and_its_best_split(store: CellStore, tmp_path: Path) -> None:
    rates = {"hmas-mixed": 0.7, "split-100": 0.8, "split-111": 0.85, "split-124": 0.84, "hmas": 0.845}
    rates |= {"fcfs-split-111": 0.95, "fixed-fcfs": 0.6}
    for cell in cells_of_two():
        of_first = cell.kind == "run" and cell.profile == REGIMES[0].profile
        if of_first and cell.load == 1.6 and cell.system in rates:
            store.put(cell, finished(rates[cell.system] + 0.01 * cell.seed))
    rows = rows_of(TWO, store)
    assert {row.system for row in rows} == set(rates)
    ours = next(row for row in rows if row.system == "hmas-mixed")
    assert ours.goodput_rate == pytest.approx(0.715)
    assert ours.seeds == 2
    assert ours.share_of_bound is None
    assert ours.goodput_sd == pytest.approx(0.01 / 2**0.5)
    (found,) = comparisons(rows)
    assert (found.best, found.load) == ("split-111", 1.6)
    assert found.gain == pytest.approx(14.5)
    assert found.behind == pytest.approx(0.5)
    page, *_ = write(STUDY, replace(TWO, out=tmp_path / "out"), store)
    text = page.read_text()
    assert "+14.5" in text
    assert "hmas: at least the best static split less 1 point: holds (0.860 beside 0.865 of split-111)" in text
    assert "hmas: at least 0.84: holds (0.860)" in text
    under_fcfs = "hmas: at least the best static split under FCFS less 1 point: **does not hold** (0.860 beside 0.965"
    assert under_fcfs in text
    assert "hmas: ESG at least plain FCFS's: holds (100 beside 100 per s)" in text
    assert "runs are not finished" in text


def test_the_share_of_the_bound_needs_the_bound(store: CellStore) -> None:
    regime = REGIMES[0]
    cell = Cell(kind="run", profile=regime.profile, engines=2, workload=WORKLOAD, load=1.6, seed=1,
                system="hmas-mixed", chunk_tokens=1024)  # fmt: skip
    store.put(cell, finished(0.8))
    store.put(cell.bound, {"goodput_rate": 0.9})
    (row,) = rows_of(Options(seeds=1), store)
    assert row.share_of_bound == pytest.approx(0.8 / 0.9)
    assert row.goodput_sd is None
