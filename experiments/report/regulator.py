"""Writes the page about what each part of Statera is worth."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.template import records
from experiments.regulator import (
    CHUNK_TOKENS,
    DRIFT,
    FIXED,
    FROZEN,
    LEAST_COST,
    MEMORY,
    MOVED,
    OTHERS,
    PARTS,
    REGIMES,
    UNTIMED,
    AblationRow,
    Course,
    RegulatorRow,
    ablation_rows,
    all_cells,
    cells,
    courses,
    rows_of,
    runs_of,
    searches,
)
from experiments.report.figures import lines
from experiments.report.in_force import HEADER, rows_in_force
from experiments.study import Finished, Options, Study
from hmas_lab.sim.systems import HMAS, PAPER

NAMED = 3  # settings in which a goal is missed that its line names
WITHIN = 1.0  # points by which the full mesh should be behind the best fixed N_run at most


def goals(rows: Sequence[RegulatorRow], missing: int) -> list[Goal]:
    """Returns what the regulator is judged by: freezing costs where memory is short and gains nowhere there, nobody is
    ahead there, and no fixed N_run is much better, nor as good under drift. While runs are `missing`, a goal can only
    be missed."""

    def unless(found: Sequence[str]) -> bool | None:
        return False if found else None if missing else True

    short = [row for row in rows if row.regime == MEMORY]
    frozen = [row for row in short if row.system == FROZEN]
    fixed = [row for row in rows if row.best_fixed]
    drift = [row for row in fixed if row.regime == DRIFT]
    if not frozen:
        return []
    cost = 100.0 * fmean(row.behind_full.mean for row in frozen)
    gains = [_told(row) for row in frozen if row.behind_full.mean < 0]
    others = [row for row in short if row.system != HMAS and not row.system.startswith("nrun-")]
    ahead = [_told(row) for row in others if _surely_ahead(row)]
    better = [_told(row) for row in fixed if row.behind_full.mean < -WITHIN / 100.0]
    level = [_told(row) for row in drift if not (row.behind_full.mean > 0 and not row.behind_full.noise)]
    cut = [row for row in rows if row.kv_blocks is not None and row.system == FROZEN]
    told = f"{cost:.1f} points; over all regimes with a cut memory {100 * fmean(r.behind_full.mean for r in cut):.1f}"
    return [
        Goal(f"{MEMORY}: freezing costs at least {LEAST_COST:g} points in the mean", told, cost >= LEAST_COST),
        Goal(f"{MEMORY}: freezing gains in no setting", _listed(gains), unless(gains)),
        Goal(f"{MEMORY}: no other system is ahead by more than chance", _listed(ahead), unless(ahead)),
        Goal(
            f"At most {WITHIN:g} point behind the best fixed N_run in every setting",
            _listed(better),
            unless(better) if fixed else None,
        ),
        Goal(
            f"{DRIFT}: ahead of the best fixed N_run by more than chance",
            _listed(level),
            unless(level) if drift else None,
        ),
    ]


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return "; ".join(found[:NAMED]) + more or "none does otherwise"


def page_of(rows: Sequence[RegulatorRow], options: Options, found: Finished) -> dict[str, Any]:
    """Draws the pictures, and returns what the template needs."""
    seconds = options.seconds
    notable = [row for row in rows if abs(row.behind_full.mean) >= WITHIN / 100.0]
    seeds = sorted({len(row.by_seed) for row in rows})
    runs = [found.get(cell) for cell in dict.fromkeys(cell for batch in cells(options, found) for cell in batch)]
    missing = runs.count(None)
    judged = goals(rows, missing)
    return {
        "seconds": seconds, "seeds": seeds, "chunk_tokens": CHUNK_TOKENS, "missing": missing,
        "goals": [goal.line for goal in judged], "met": sum(goal.met is True for goal in judged), "within": WITHIN,
        "cpu_h": sum(run["cpu_s"] for run in runs if run) / 3600.0,
        "untimed": [_told(row) for row in notable if row.system == UNTIMED],
        "moved": [_told(row) for row in notable if row.system == MOVED],
        "longer": {regime.name: regime.least_s for regime in REGIMES if regime.least_s > seconds},
        "parts": [(part, *_counts([r for r in rows if r.system == part])) for part in (FROZEN, *PARTS, *OTHERS)],
        "pictures": _pictures(courses(options, found), options.out),
    }  # fmt: skip


def parts_of(options: Options, found: Finished) -> dict[str, Any]:
    """Returns `regulator-parts.json`: the searches, Table 2 where its parts act, and what was in force in our runs."""
    fixed = [
        (setting, *(f"{means[system]:.3f}" for system in FIXED))
        for setting, means in searches(found, options.data).items()
    ]
    columns = ("regime", "workload", "load", "system", "goodput rate", "costs")
    return {
        "ablation": records(columns, map(_ablated, ablation_rows(options, found))),
        "searches": records(("setting", *FIXED), fixed),
        "in_force": records(HEADER, rows_in_force(runs_of(found, all_cells(options)))),
    }


def _surely_ahead(row: RegulatorRow) -> bool:
    return row.behind_full.mean < 0 and not row.behind_full.noise


def _told(row: RegulatorRow) -> str:
    return (
        f"{row.regime}, {row.workload} at {row.load:g} λ* ({row.system}, {-100 * row.behind_full.mean:+.1f} points"
        f"{', within chance' if row.behind_full.noise else ''})"
    )


def _counts(rows: Sequence[RegulatorRow]) -> tuple[str, str, str, str]:
    """Returns in how many settings the full mesh is ahead, level and behind, and by how many points in the mean."""
    level = sum(row.behind_full.noise for row in rows)
    ahead = sum(row.behind_full.mean > 0 and not row.behind_full.noise for row in rows)
    mean = f"{100 * fmean(row.behind_full.mean for row in rows):+.1f}" if rows else "-"
    return str(ahead), str(level), str(len(rows) - level - ahead), mean


def _pictures(courses: Sequence[Course], out: Path) -> list[tuple[str, str]]:
    """Draws utilisation with its band, N_run, what runs, and B_token over time, one picture per regime. Returns (what
    is shown, path) of each."""
    found: list[tuple[str, str]] = []
    for regime in dict.fromkeys(course.regime for course in courses):
        panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
        own = [course for course in courses if course.regime == regime]
        for course in own:
            times = [float(row["at_s"]) for row in course.rows]
            for panel, columns in (
                ("utilisation and band", ("utilisation", "band_low", "band_high")),
                ("sequences", ("n_run", "running", "queued")),
                ("tokens a step", ("b_token",)),
            ):
                series = {name: (times, [float(row[name]) for row in course.rows]) for name in columns}
                panels[f"{course.system}: {panel}"] = series
        slug = f"regulator-{regime.name.replace(' ', '-').lower()}-{regime.kind}.svg"
        path = out / "figures" / slug
        lines(path, panels, "s", legends=True)
        found.append((f"{regime.name}, {regime.kind} at {own[0].load:g} λ*", f"figures/{slug}"))
    return found


def _ablated(row: AblationRow) -> tuple[str, ...]:
    cost = f"{100 * row.behind_whole.mean:+.1f} ± {100 * row.behind_whole.half:.1f}"
    return (
        row.regime, row.workload, f"{row.load:g}", row.system, f"{row.goodput_rate:.3f}",
        "" if row.system == PAPER else cost,
    )  # fmt: skip


STUDY = Study(
    name="regulator",
    about="Measures what each part of Statera is worth where memory, time per token or compute is short.",
    takes=("out", "seeds", "seconds", "processes", "cells", "data", "pages_only"),
    defaults=Options(seconds=120.0),
    cells=cells,
    rows=rows_of,
    values=page_of,
    also=lambda rows, options, found: {"regulator-parts.json": parts_of(options, found)},
)
