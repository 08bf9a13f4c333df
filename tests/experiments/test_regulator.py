"""The page about Statera's parts: systems are compared seed by seed, and what is missing is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.regulator import (
    FIXED,
    FROZEN,
    REGIMES,
    SEARCH_S,
    SEARCH_SEEDS,
    SYSTEMS,
    TABLE_2,
    ablation_rows,
    all_cells,
    cells_of,
    courses,
    rows_of,
)
from experiments.report.regulator import STUDY, goals
from experiments.study import Options
from experiments.writer import write
from hmas.engine.core.profile import builtin_profile
from hmas_lab.sim.cells import CellStore
from hmas_lab.sim.systems import HMAS, system_names

SEEDS, SECONDS = (1, 2, 3), 60.0
OPTIONS = Options(seeds=len(SEEDS), seconds=SECONDS)
MEMORY = REGIMES[0]


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path, lambda cell: "code")


def finished(goodput: float) -> dict[str, Any]:
    coverage = {"total": {"admitted": 50, "outgrown": 5}}
    score = {"goodput_rate": goodput, "esg_rate": 100.0, "ttft_p50_s": 0.2}
    row = {
        "at_s": 2.0, "utilisation": 0.9, "band_low": 0.85, "band_high": 0.95, "n_run": 9, "running": 5, "b_token": 9,
        "queued": 4,
    }  # fmt: skip
    return {
        "score": score,
        "cpu_s": 1.0,
        "run": {"coverage": coverage, "preemptions": 3, "regulated": [row, {**row, "at_s": 99.0}]},
    }


def search(store: CellStore, best: str) -> None:
    """Finishes the search at 1.4 λ*, which finds `best`."""
    for system in FIXED:
        for cell in cells_of(MEMORY, 1.4, system, SEARCH_SEEDS, SEARCH_S, None):
            store.put(cell, finished(0.8 + 0.1 * (system == best)))


def test_every_system_is_known_and_traces_need_data() -> None:
    cells = all_cells(OPTIONS)
    assert {cell.system for cell in cells} == {*SYSTEMS, *TABLE_2} <= set(system_names())
    assert not any(cell.workload.file for cell in cells)


def test_a_cut_memory_is_that_of_the_runs_and_of_their_unit_of_load() -> None:
    (cell,) = cells_of(MEMORY, 1.1, FROZEN, (1,), SECONDS, None)
    assert cell.engine.limits.num_gpu_blocks == MEMORY.kv_blocks
    assert cell.engine.limits.num_gpu_blocks < builtin_profile(MEMORY.profile).limits.num_gpu_blocks
    assert cell.capacity.engine == cell.engine


def test_a_part_is_compared_with_the_whole_seed_by_seed(store: CellStore, tmp_path: Path) -> None:
    search(store, "nrun-48")
    for system in (*SYSTEMS, "nrun-48"):
        behind = {FROZEN: 0.03, "nrun-48": -0.02, "niyama": -0.01}.get(system, 0.0)
        for cell in cells_of(MEMORY, 1.4, system, SEEDS, SECONDS, None):
            store.put(cell, finished(0.9 + 0.01 * cell.seed - behind * (1.0 + cell.seed / 30.0)))
    rows = rows_of(OPTIONS, store)
    assert {row.system for row in rows} == {*SYSTEMS, "nrun-48"}
    frozen = next(row for row in rows if row.system == FROZEN)
    assert frozen.behind_full.mean == pytest.approx(0.032)
    assert not frozen.behind_full.noise
    assert frozen.outgrown == pytest.approx(0.1)
    seen = courses(OPTIONS, store)
    page, document, _ = write(STUDY, replace(OPTIONS, out=tmp_path / "out"), store)
    text = page.read_text()
    judged = {goal.words: goal for goal in goals(rows, 0)}
    assert [goal.met for goal in judged.values()] == [True, True, False, False, None]
    assert judged["memory short: freezing costs at least 2.5 points in the mean"].found.startswith("3.2 points")
    assert "memory short, mix at 1.4 λ* (niyama, +1.1 points): **missed**" in text
    assert "memory short, mix at 1.4 λ* (nrun-48, +2.1 points): **missed**" in text
    assert "runs are not finished" in text
    assert "| hmas-frozen | 1 | 0 | 0 | +3.2 |" in text
    assert document.name == "regulator.json"
    assert [course.system for course in seen] == [HMAS, "hmas-untimed", "hmas-moving"]
    assert [row["at_s"] for row in seen[0].rows] == [2.0]  # those of the offered window
    assert (tmp_path / "out" / "figures" / "regulator-memory-short-mix.svg").read_text().startswith("<?xml")


def test_a_setting_is_told_of_the_seeds_that_all_its_systems_have_finished(store: CellStore) -> None:
    search(store, "nrun-48")
    for system in SYSTEMS:
        for cell in cells_of(MEMORY, 1.4, system, SEEDS[: 1 if system == FROZEN else 2], SECONDS, None):
            store.put(cell, finished(0.9))
    rows = rows_of(OPTIONS, store)
    assert {len(row.by_seed) for row in rows} == {1}
    assert {row.system for row in rows} == set(SYSTEMS)  # the best fixed N_run has not run yet


def test_an_unlimited_n_run_may_be_the_best_fixed_one(store: CellStore) -> None:
    search(store, "hmas-untimed")
    for system in SYSTEMS:
        for cell in cells_of(MEMORY, 1.4, system, SEEDS, SECONDS, None):
            store.put(cell, finished(0.9 + 0.02 * (system == "hmas-untimed") + 0.001 * cell.seed))
    rows = rows_of(OPTIONS, store)
    assert [row.system for row in rows if row.best_fixed] == ["hmas-untimed"]
    (goal,) = [goal for goal in goals(rows, 0) if "best fixed" in goal.words and "every" in goal.words]
    assert goal.met is False
    (ahead,) = [goal for goal in goals(rows, 0) if "no other system" in goal.words]
    assert "hmas-untimed" in ahead.found  # the best fixed limit is a system of its own, too
    assert {goal.met for goal in goals(rows, 3)} <= {False, None}


def test_a_component_is_compared_with_the_published_whole(store: CellStore) -> None:
    for system in TABLE_2:
        for cell in cells_of(MEMORY, MEMORY.loads[0], system, SEEDS, SECONDS, None):
            store.put(cell, finished(0.7 - 0.05 * (system == "no-meta") + 0.01 * cell.seed))
    rows = {row.system: row for row in ablation_rows(OPTIONS, store)}
    assert rows.keys() == set(TABLE_2)
    assert rows["no-meta"].behind_whole.mean == pytest.approx(0.05)
    assert rows["frozen-statera"].behind_whole.mean == pytest.approx(0.0)
