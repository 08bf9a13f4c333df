"""The page about Statera's parts: systems are compared seed by seed, and what is missing is said."""

import json
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
    Course,
    RegulatorRow,
    ablation_rows,
    all_cells,
    cells_of,
    courses,
    regime_rows,
    rows_of,
    searches,
)
from experiments.report.regimes import put_rows
from experiments.report.regulator import RegulatorStudy, goals, write_page
from hmas.engine.core.profile import builtin_profile
from hmas.sim.cells import CellStore
from hmas.sim.systems import HMAS, system_names

SEEDS, SECONDS = (1, 2, 3), 60.0
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
    return {"score": score, "run": {"coverage": coverage, "preemptions": 3, "regulated": [row, {**row, "at_s": 99.0}]}}


def search(store: CellStore, best: str) -> None:
    """Finishes the search at 1.4 λ*, which finds `best`."""
    for system in FIXED:
        for cell in cells_of(MEMORY, 1.4, system, SEARCH_SEEDS, SEARCH_S, None):
            store.put(cell, finished(0.8 + 0.1 * (system == best)))


def study(store: CellStore, rows: list[RegulatorRow], seen: list[Course]) -> RegulatorStudy:
    return RegulatorStudy(
        rows=rows, courses=seen, ablation=ablation_rows(store, SEEDS, SECONDS, None), searches=searches(store, None),
        found={}, seconds=SECONDS, cpu_s=3600.0, missing=7,
    )  # fmt: skip


def test_every_system_is_known_and_traces_need_data() -> None:
    cells = all_cells(SEEDS, SECONDS, None)
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
    rows = rows_of(store, SEEDS, SECONDS, None)
    assert {row.system for row in rows} == {*SYSTEMS, "nrun-48"}
    frozen = next(row for row in rows if row.system == FROZEN)
    assert frozen.behind_full.mean == pytest.approx(0.032)
    assert not frozen.behind_full.noise
    assert frozen.outgrown == pytest.approx(0.1)
    seen = courses(store, SEEDS, SECONDS, None)
    page, document, regimes = write_page(study(store, rows, seen), tmp_path / "out")
    text = page.read_text()
    judged = {goal.words: goal for goal in goals(rows, 0)}
    assert [goal.met for goal in judged.values()] == [True, True, False, False, None]
    assert judged["memory short: freezing costs at least 2.5 points in the mean"].found.startswith("3.2 points")
    assert "memory short, mix at 1.4 λ* (niyama, +1.1 points): **missed**" in text
    assert "memory short, mix at 1.4 λ* (nrun-48, +2.1 points): **missed**" in text
    assert "7 runs are not finished" in text
    assert "| hmas-frozen | 1 | 0 | 0 | +3.2 |" in text
    assert document.name == "regulator.json"
    assert [course.system for course in seen] == [HMAS, "hmas-untimed", "hmas-moving", "hmas-seeking"]
    assert [row["at_s"] for row in seen[0].rows] == [2.0]  # those of the offered window
    assert (tmp_path / "out" / "figures" / "regulator-memory-short-mix.svg").read_text().startswith("<?xml")
    told = regime_rows(rows)
    assert json.loads(regimes.read_text()) == told
    assert {"regime", "profile", "workload", "load", "system", "goodput_rate", "goodput_sd", "esg", "ttft_p50",
            "share_of_bound"} == told[0].keys()  # fmt: skip


def test_a_setting_is_told_of_the_seeds_that_all_its_systems_have_finished(store: CellStore) -> None:
    search(store, "nrun-48")
    for system in SYSTEMS:
        for cell in cells_of(MEMORY, 1.4, system, SEEDS[: 1 if system == FROZEN else 2], SECONDS, None):
            store.put(cell, finished(0.9))
    rows = rows_of(store, SEEDS, SECONDS, None)
    assert {len(row.by_seed) for row in rows} == {1}
    assert {row.system for row in rows} == set(SYSTEMS)  # the best fixed N_run has not run yet
    assert rows_of(store, SEEDS[1:], SECONDS, None) == []


def test_an_unlimited_n_run_may_be_the_best_fixed_one(store: CellStore) -> None:
    search(store, "hmas-untimed")
    for system in SYSTEMS:
        for cell in cells_of(MEMORY, 1.4, system, SEEDS, SECONDS, None):
            store.put(cell, finished(0.9 + 0.02 * (system == "hmas-untimed") + 0.001 * cell.seed))
    rows = rows_of(store, SEEDS, SECONDS, None)
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
    rows = {row.system: row for row in ablation_rows(store, SEEDS, SECONDS, None)}
    assert rows.keys() == set(TABLE_2)
    assert rows["no-meta"].behind_whole.mean == pytest.approx(0.05)
    assert rows["frozen-statera"].behind_whole.mean == pytest.approx(0.0)


def test_the_rows_of_two_pages_do_not_replace_each_other(tmp_path: Path) -> None:
    layouts, parts = [{"regime": "TPOT short", "system": "hmas"}], [{"regime": "TPOT short, one engine", "n": 1}]
    put_rows(layouts, tmp_path)
    put_rows(parts, tmp_path)
    assert json.loads(put_rows(layouts, tmp_path).read_text()) == [*layouts, *parts]
    renamed = [{"regime": "TPOT short, few blocks", "n": 2}]
    assert json.loads(put_rows(renamed, tmp_path).read_text()) == [*layouts, *renamed]
