"""A drift of TPOT SLOs inside a run: the oracle is made of the best layouts of its halves, and changes in mid-run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.regimes import STUDY
from experiments.slo_drift import (
    MIXED,
    ORACLE,
    SEEDS,
    STATIC,
    DriftCell,
    behind,
    known_cells,
    oracle_cells,
    rows_of,
    split_of,
)
from experiments.study import Options
from experiments.writer import write
from hmas.contracts.control import INITIAL_TOPOLOGY, Split
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import MeshSetup
from hmas_lab.sim.systems import HMAS, MESHES
from tests.sim.sim_cases import SMALL, random_workload


def figures(first: float, second: float) -> dict[str, Any]:
    return {
        "first_half": first, "second_half": second, "goodput_rate": (first + second) / 2, "esg": 100.0, "ttft_p50": 0.2,
        "layouts": [],
    }  # fmt: skip


def found() -> dict[DriftCell, dict[str, Any]]:
    return {
        cell: figures(0.9 if cell.system == "split-111" else 0.7, 0.95 if cell.system == MIXED else 0.8)
        for cell in known_cells()
    }


def test_every_static_layout_is_a_system() -> None:
    assert set(STATIC) <= MESHES.keys() | {f"split-{ms}" for ms in (160, 178, 198)}
    assert split_of(MIXED) == Split()
    assert split_of("split-111") == Split((0.111,), (1, 1))


def test_the_oracle_has_the_best_static_layout_of_each_half() -> None:
    cells = oracle_cells(found())
    assert [(cell.seed, cell.first, cell.second) for cell in cells] == [(seed, "split-111", MIXED) for seed in SEEDS]


def test_the_page_says_how_far_the_choice_is_behind(tmp_path: Path) -> None:
    options = Options(seeds=1, out=tmp_path)
    assert "Not measured." in write(STUDY, options, {})[0].read_text()
    runs = found() | {cell: figures(0.9, 0.95) for cell in oracle_cells(found())}
    rows = rows_of(runs)
    assert rows[0].system == ORACLE
    assert behind(rows) == pytest.approx(100 * (0.925 - 0.75))
    for there in (runs, {}):  # the second time, from the rows that the first one wrote
        text = write(STUDY, options, there)[0].read_text()
        assert "17.5 points behind it" in text
        assert f"| {HMAS} | 0.750 ± 0.000 |" in text
    assert rows_of({cell: run for cell, run in runs.items() if cell.seed != 2}) == []


def test_a_pinned_layout_changes_at_its_instant() -> None:
    setup = MeshSetup(
        estimator="perfect", costs="engine", pin=INITIAL_TOPOLOGY, split=Split((0.1,), (1, 1)),
        splits=((10.0, Split()), (20.0, Split((0.2,), (1, 1)))),
    )  # fmt: skip
    workload = random_workload(1, 4.0, 30.0)
    spans = MeshSim(setup, SMALL, 2, workload, seed=1).run().run.layouts
    assert [span.topology for span in spans] == ["<= 100 ms: 1, > 100 ms: 1", "mixed", "<= 200 ms: 1, > 200 ms: 1"]
    assert [round(span.start_s) for span in spans] == [0, 10, 20]
    without = MeshSim(replace(setup, splits=()), SMALL, 2, workload, seed=1).run()
    assert len(without.run.layouts) == 1
