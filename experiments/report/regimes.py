"""Writes the page about layouts in the regimes where TPOT is short and where compute is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiments import length_bounds
from experiments.regimes import (
    CHUNK_TOKENS,
    FCFS,
    REGIMES,
    WORKLOAD,
    LayoutComparison,
    RegimeRow,
    batches,
    cells_of,
    comparisons,
    rows_of,
)
from experiments.report.in_force import in_force_of
from experiments.report.markdown import verdict
from experiments.report.template import render
from experiments.slo_drift import EASIER, HALF_S, DriftRow, behind
from hmas.sim.cells import CellStore
from hmas.sim.systems import HMAS

GENERATED = "\n<!-- Written by `python -m experiments regimes`; do not edit. -->\n"
DRIFT = "slo-drift.json"
LEVEL = 0.3  # points; less is called level
BEHIND = 1.0  # points that the chosen layout may be behind the best static split
AT, LEAST = 1.6, {"hmas": 0.84, "hmas-plugin": 0.89}  # goodput rates to be reached at that load where TPOT is short


def write_page(store: CellStore, seeds: Sequence[int], out: Path) -> list[Path]:
    """Writes `regimes.md` and its rows of `regimes.json` into `out` from the finished runs, and returns the paths."""
    rows = rows_of(store, seeds)
    drift = drift_rows(out)
    text = render(
        Path(__file__).with_name("regimes.md.j2"),
        seconds=WORKLOAD.duration_s,
        chunk_tokens=CHUNK_TOKENS,
        seeds=len(seeds),
        bounds=length_bounds.told(length_bounds.of_cell(store.get(cell)) for batch in batches(seeds) for cell in batch),
        capacities=_capacities(store, seeds),
        goals="".join(_goals(rows)),
        verdicts=[_verdict(c) for c in comparisons(rows)],
        missing=_missing(store, seeds),
        rows=[_cells(row) for row in rows],
        drift=drift,
        drift_rows=[_drift_cells(row) for row in drift],
        behind=behind(drift) if drift else 0.0,
        in_force=_in_force(store, seeds),
        half_s=HALF_S,
        easier=EASIER,
        drift_seeds=drift[0].seeds if drift else 0,
    )
    out.mkdir(parents=True, exist_ok=True)
    page = out / "regimes.md"
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    return [page, put_rows([asdict(row) for row in rows], out)]


def put_rows(found: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Writes rows into `regimes.json` in the place of those of the same page, and returns its path. It has the regimes
    of this page, which come first, and those of the regulator's."""
    path, own = out / "regimes.json", {regime.name for regime in REGIMES}
    replaced = {row["regime"] in own for row in found}
    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = [*(row for row in there if (row["regime"] in own) not in replaced), *found]
    rows.sort(key=lambda row: row["regime"] not in own)
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return path


def write_drift(rows: Sequence[DriftRow], out: Path) -> Path:
    """Writes the figures of a drift of SLOs, which `write_page` reads."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / DRIFT
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return path


def drift_rows(out: Path) -> list[DriftRow]:
    """Returns the figures that `write_drift` wrote into `out`; none if it did not."""
    path = out / DRIFT
    return [DriftRow(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def _capacities(store: CellStore, seeds: Sequence[int]) -> str:
    told = []
    for regime in REGIMES:
        found = store.get(cells_of(regime, regime.loads[0], HMAS, seeds[:1])[0].capacity)
        told.append(f"{regime.profile} {found['rate_rps']:.2f}" if found else f"{regime.profile} not measured")
    return "; ".join(told)


def _in_force(store: CellStore, seeds: Sequence[int]) -> str:
    """Returns what was in force in the runs of the systems that choose, by regime and load; empty without any."""
    found = {
        f"{system}, {regime.name}, {load:g} λ*": [store.get(cell) for cell in cells_of(regime, load, system, seeds)]
        for regime in REGIMES
        for load in sorted(regime.loads)
        for system in LEAST
    }
    runs = {name: [row for row in rows if row and length_bounds.of_cell(row)] for name, rows in found.items()}
    runs = {name: rows for name, rows in runs.items() if rows}
    return in_force_of(runs) if runs else ""


def _missing(store: CellStore, seeds: Sequence[int]) -> int:
    wanted = [(regime, load, system) for regime in REGIMES for load in regime.loads for system in regime.systems]
    return sum(store.get(cell) is None for setting in wanted for cell in cells_of(*setting, seeds))


def _goals(rows: Sequence[RegimeRow]) -> list[str]:
    """Returns what was to be reached, with what was."""
    by = {(row.regime, row.load, row.system): row for row in rows}
    told = []
    for c in comparisons(rows):
        where, rates = f"{c.regime}, {c.load:g} λ*, {c.system}", f"{c.chosen:.3f} beside {c.best_rate:.3f} of {c.best}"
        if c.regime == REGIMES[0].name:
            claim = f"{where}: at least the best static split less {BEHIND:g} point"
            told.append(verdict(claim, 100.0 * (c.best_rate - c.chosen) <= BEHIND, rates))
        else:
            claim = f"{where}: no more than {LEVEL:g} points below the pool that is always mixed"
            told.append(verdict(claim, c.gain >= -LEVEL, f"{c.chosen:.3f} beside {c.mixed:.3f}"))
        if c.regime == REGIMES[0].name and c.load == AT:
            told.append(
                verdict(f"{where}: at least {LEAST[c.system]:g}", c.chosen >= LEAST[c.system], f"{c.chosen:.3f}")
            )
        ours, fcfs = by[c.regime, c.load, c.system], by.get((c.regime, c.load, FCFS))
        splits = {
            s: row
            for (regime, load, s), row in by.items()
            if (regime, load) == (c.regime, c.load) and s.startswith("fcfs-split")
        }
        if splits and c.system == HMAS:
            best = max(splits, key=lambda s: splits[s].goodput_rate)
            least = splits[best].goodput_rate
            claim = f"{where}: at least the best static split under FCFS less {BEHIND:g} point"
            told.append(
                verdict(claim, 100.0 * (least - c.chosen) <= BEHIND, f"{c.chosen:.3f} beside {least:.3f} of {best}")
            )
        if fcfs is not None:
            points = 100.0 * (ours.goodput_rate - fcfs.goodput_rate)
            told.append(
                verdict(
                    f"{where}: ESG at least plain FCFS's",
                    ours.esg >= fcfs.esg,
                    f"{ours.esg:.0f} beside {fcfs.esg:.0f} per s",
                    f"That is {100.0 * (ours.esg / fcfs.esg - 1.0):.1f} %, for {points:+.1f} points of goodput; "
                    "`HMAS_OBJECTIVE=tokens` is the operator's switch that plans for ESG.",
                )
            )
    return told


def _verdict(c: LayoutComparison) -> tuple[str, ...]:
    def points(value: float) -> str:
        return "level" if abs(value) < LEVEL else f"{value:+.1f}"

    best = f"{c.best} {c.best_rate:.3f}"
    rates = f"{c.mixed:.3f}", f"{c.chosen:.3f}"
    return c.regime, f"{c.load:g}", c.system, *rates, points(c.gain), best, points(-c.behind)


def _drift_cells(row: DriftRow) -> tuple[str, ...]:
    rate = f"{row.goodput_rate:.3f} ± {row.goodput_sd:.3f}"
    return row.system, rate, f"{row.first_half:.3f}", f"{row.second_half:.3f}", f"{row.esg:.0f}", f"{row.ttft_p50:.2f}"


def _cells(row: RegimeRow) -> tuple[str, ...]:
    sd = "" if row.goodput_sd is None else f" ± {row.goodput_sd:.3f}"
    share = "not computed" if row.share_of_bound is None else f"{row.share_of_bound:.3f}"
    return (
        row.regime, f"{row.load:g}", row.system, f"{row.goodput_rate:.3f}{sd}", share, f"{row.esg:.0f}",
        f"{row.ttft_p50:.2f}", str(row.seeds),
    )  # fmt: skip
