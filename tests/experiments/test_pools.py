"""Layouts in larger and mixed pools: pools are made of the kinds that they name, and the page judges what was run."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.pools import (
    A100,
    CASES,
    CHOSEN,
    H100,
    LATE,
    LEAST,
    MIXED,
    SPLIT,
    PoolCell,
    cells_of,
    compute,
    highest_rate,
    rows_of,
)
from experiments.report.pools import STUDY, comparisons
from experiments.slo_drift import FILE, ORACLE, DriftRow
from experiments.study import Options
from experiments.writer import put, write
from hmas_lab.sim.cells import CellStore

MIXED_POOL, THREE = CASES[0], CASES[2]


@pytest.fixture
def store(tmp_path: Path) -> CellStore:
    return CellStore(tmp_path / "cells", lambda cell: "code")


def finished(goodput: float, esg: float = 100.0, later: float | None = None) -> dict[str, Any]:
    return {
        "rate_rps": 5.0, "goodput_rate": goodput, "later": goodput if later is None else later, "esg": esg,
        "esg_late": 10.0, "ttft_p50": 0.2, "layouts": [[30.0, "<= 100 ms: 1, > 100 ms: 2"]],
    }  # fmt: skip


def fill(store: CellStore, rates: dict[str, dict[str, Any]]) -> None:
    for cell in cells_of(THREE, (1, 2)):
        if cell.system in rates:
            store.put(cell, rates[cell.system])


def written(store: CellStore, seeds: int, out: Path) -> str:
    return write(STUDY, Options(seeds=seeds, out=out), store)[0].read_text()


def test_every_split_of_a_case_leaves_engines_to_both_classes() -> None:
    for case in CASES:
        engines = sum(number for _, number in case.kinds)
        assert all(0 < split.strict < engines for split in case.splits)


def test_the_order_of_the_engines_and_their_number_change_no_unit_of_load() -> None:
    larger = replace(MIXED_POOL, kinds=((A100, 4), (H100, 4)), times=4)
    assert larger.capacity == MIXED_POOL.capacity


def test_plain_fcfs_is_run_once_for_any_number_of_workers() -> None:
    alike = [case for case in CASES if case.name == THREE.name]
    assert [case.workers for case in alike] == [1, 3]
    least = [next(cell for cell in case.cells(1.4, 1) if cell.system == LEAST) for case in alike]
    assert least[0] == least[1]


@pytest.mark.parametrize("system", [MIXED, LEAST, SPLIT, LATE])
def test_a_run_gives_its_figures(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.pools.LEARNT_S", 4.0)
    monkeypatch.setattr("experiments.pools.perceived", lambda workload, folder: workload)
    monkeypatch.setattr("experiments.pools.LATE_S", 5.0)
    split = {"cut_ms": 111, "strict": 1} if system in (SPLIT, LATE) else {}
    cell = PoolCell(kinds=((H100, 1), (A100, 1)), system=system, workers=2, load=1.0, seed=1, seconds=8.0, **split)
    found = compute(cell, 3.0)
    assert 0.5 < found["goodput_rate"] <= 1.0
    assert 0.0 <= found["esg_late"] < found["esg"]
    assert [text for _, text in found["layouts"]] == (["<= 111 ms: 1, > 111 ms: 1"] if split else [])
    assert not split or (found["layouts"][0][0] > 5.0) is (system == LATE)


def test_a_faster_engine_beside_a_slow_one_bears_more_than_two_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.pools.CAPACITY_SEEDS", (9001,))
    cell = PoolCell(kinds=((A100, 1), (H100, 1)), system="capacity", seconds=30.0)
    assert highest_rate(cell) > 1.2 * highest_rate(replace(cell, kinds=((A100, 2),)))


def test_a_choice_that_loses_only_at_the_start_is_told_from_one_that_is_worse(store: CellStore, tmp_path: Path) -> None:
    best = finished(0.95, later=0.94)
    fill(
        store,
        {
            CHOSEN: finished(0.9, later=0.935),
            MIXED: finished(0.8),
            LEAST: finished(0.7),
            SPLIT: best,
            LATE: finished(0.92),
        },
    )
    rows = rows_of(Options(seeds=2), store)
    (found,) = comparisons(rows)
    assert found.behind == pytest.approx(5.0)
    assert found.later_behind == pytest.approx(0.5)
    text = written(store, 2, tmp_path)
    assert "less 1 point: **does not hold** (0.900 beside 0.950" in text
    assert "the distance is from the time before a layout is chosen" in text
    assert "mixed for 30 s and has split-100: 1 of 3 from then on reaches 0.920" in text
    fill(store, {CHOSEN: finished(0.9, later=0.9)})
    text = written(store, 2, tmp_path)
    assert "Chosen by then, in the first seed: 30 s <= 100 ms: 1, > 100 ms: 2." in text
    fill(store, {CHOSEN: finished(0.945, esg=99.0)})
    text = written(store, 2, tmp_path)
    assert "less 1 point: holds" in text
    assert "ESG at least that of plain FCFS: **does not hold** (99 beside 100 per s)" in text
    for cell in cells_of(THREE, (1, 2)):
        if cell.system == SPLIT and cell.cut_ms == 90:
            (tmp_path / "cells" / "code" / f"{cell.key()}.json").unlink()
    text = written(store, 2, tmp_path)
    assert "less 1 point: not measured (0.945 beside 0.950 of split-100: 1 of 3; 1 splits are not run)" in text
    assert "runs are not finished" in text


def test_the_drift_is_judged_by_the_oracle(store: CellStore, tmp_path: Path) -> None:
    assert "anew at once: not measured" in written(store, 1, tmp_path)
    ours = DriftRow(system=CHOSEN, seeds=5, goodput_rate=0.95, goodput_sd=0.0, first_half=0.94, second_half=0.96,
                    esg=1.0, ttft_p50=0.1)  # fmt: skip
    rows = [ours, replace(ours, system=MIXED), replace(ours, system=ORACLE, goodput_rate=0.98, second_half=0.99)]
    put({FILE: [asdict(row) for row in rows]}, tmp_path, "")
    text = written(store, 1, tmp_path)
    assert "anew at once: **does not hold** (3.0 points behind, 5 seeds)" in text
    assert "It loses 0.0 points in the first half and 3.0 in the second" in text
    rows[2] = replace(rows[2], goodput_rate=0.96)
    put({FILE: [asdict(row) for row in rows]}, tmp_path, "")
    assert "anew at once: holds (1.0 points behind, 5 seeds)" in written(store, 1, tmp_path)


def test_a_static_split_says_what_it_is() -> None:
    cell = PoolCell(kinds=((A100, 3),), system=SPLIT, cut_ms=100, strict=1)
    assert (cell.name, replace(cell, system=LATE).name) == ("split-100: 1 of 3", "late-split-100: 1 of 3")


@pytest.mark.parametrize(("ours", "verdict"), [(0.91, "holds"), (0.902, "**does not hold**")])
def test_a_mixed_pool_must_be_ahead_and_not_only_level(
    store: CellStore, tmp_path: Path, ours: float, verdict: str
) -> None:
    rates = {CHOSEN: ours, MIXED: 0.8, LEAST: 0.7, SPLIT: 0.9, LATE: 0.9}
    for cell in cells_of(MIXED_POOL, (1,)):
        store.put(cell, finished(rates[cell.system]))
    text = written(store, 1, tmp_path)
    assert f"by more than 0.3 points: {verdict} ({ours:.3f} beside 0.700 and 0.900)" in text
    assert "**All is of one seed**" in text
