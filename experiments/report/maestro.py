"""Writes the page about scheduling by job: Fig. 7 of the Maestro paper, with the goals that were set and what came."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, pstdev
from typing import Any

from experiments.length_bounds import told
from experiments.maestro.measure import (
    BOUND,
    ENGINES,
    LOADS,
    PROFILE,
    SEQUENCES,
    STRESS_BATCH,
    STRESS_LOAD,
    SYSTEMS,
    VARIANTS,
    JobCell,
    cells,
    code_of,
    compute,
    finished,
    given,
)
from experiments.maestro.mesh import HMAS, TABLE
from experiments.maestro.orders import CLAIRVOYANT, EDF, EDF_CLASS, FCFS, MAESTRO, ORACLE
from experiments.pages.goal import Goal
from experiments.study import Options, Study

PAPER = {EDF: 0.5, EDF_CLASS: 0.5, MAESTRO: 0.736}  # at the high-stress point
CLAIRVOYANTS = (ORACLE, CLAIRVOYANT)
Point = tuple[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system at one point, as means over the seeds; `spread` is the standard deviation of `job_goodput`."""

    experiment: str
    workload: str
    load: float
    seeds: int
    system: str
    job_goodput: float
    share_of_bound: float
    wasted: float
    hit: float
    busy_ratio: float
    paper: float | None
    interactive: float
    batch: float
    interactive_wait_s: float
    spread: float


def rows_of(found: Sequence[tuple[JobCell, Mapping[str, Any]]]) -> list[Row]:
    """Returns the rows of all points, in the order of the cells."""
    bounds, runs = dict[tuple[str, float, int], float](), defaultdict[tuple[Point, str], list[tuple[int, Any]]](list)
    for cell, figures in found:
        if cell.kind == BOUND:
            bounds[cell.workload, cell.load, cell.seed] = figures["bound"]
        elif cell.kind == "run":
            runs[(cell.workload, cell.load), cell.system].append((cell.seed, figures))
    rows = []
    for ((workload, load), system), some in runs.items():
        mean = {name: fmean(f[name] for _, f in some) for name in some[0][1] if name not in ("cpu_s", "cell")}
        stress = load == STRESS_LOAD and f"batch-{STRESS_BATCH:g}" in workload
        shares = [f["job_goodput"] / bounds[workload, load, seed] for seed, f in some]
        rows.append(
            Row(
                experiment="fig7", workload=workload, load=load, seeds=len(some), system=system,
                job_goodput=mean["job_goodput"], share_of_bound=fmean(shares), wasted=mean["wasted"], hit=mean["hit"],
                busy_ratio=mean["busy_ratio"], paper=PAPER.get(system) if stress else None,
                interactive=mean["interactive"], batch=mean["batch"], interactive_wait_s=mean["interactive_wait_s"],
                spread=pstdev([f["job_goodput"] for _, f in some]),
            )
        )  # fmt: skip
    return rows


def goals_of(rows: Sequence[Row], caches: bool) -> list[Goal]:
    """Returns the goals of one half of the experiment, without or with prefix caches."""
    some = [row for row in rows if row.workload.endswith("+cache") is caches]
    at = {(row.workload, row.load, row.system): row for row in some}
    plain = next(row.workload for row in some if "batch" not in row.workload)
    stress = next(row.workload for row in some if "batch" in row.workload)

    def kept(system: str, load: float, workload: str = plain) -> float:
        return at[workload, load, system].job_goodput

    goals = []
    for load in (x for x in LOADS if x > 1.0):
        order = [kept(s, load) for s in (FCFS, EDF, MAESTRO, ORACLE)]
        ok = order[0] < order[1] < order[2] <= order[3]
        goals.append(
            Goal(f"FCFS < EDF < Maestro ≤ Oracle-SRTF at {load:g}", " / ".join(f"{100 * x:.1f}" for x in order), ok)
        )
    gaps = [kept(MAESTRO, STRESS_LOAD, stress) - kept(s, STRESS_LOAD, stress) for s in (EDF, EDF_CLASS)]
    goals.append(
        Goal(
            "Maestro − EDF ≥ 23.6 points at the high-stress point, in one reading",
            f"{100 * gaps[0]:.1f} points by due time alone, {100 * gaps[1]:.1f} with interactive jobs first",
            max(gaps) >= 0.236,
        )
    )
    for load in (1.4, 2.0):
        gain, most = kept(HMAS, load) - kept(MAESTRO, load), kept(CLAIRVOYANT, load) - kept(MAESTRO, load)
        goals.append(
            Goal(
                f"H-MAS closes half of the distance from Maestro to the clairvoyant order at {load:g}",
                f"{100 * gain:.1f} of {100 * most:.1f} points",
                gain >= 0.5 * most,
            )
        )
    for load, least in ((1.4, 0.9), (2.0, 0.8)):
        share = at[plain, load, HMAS].share_of_bound
        goals.append(Goal(f"H-MAS ≥ {least:g} of the bound at {load:g}", f"{share:.3f}", share >= least))
    for load in (x for x in LOADS if x > 1.0):
        others = {s: kept(s, load) for s in SYSTEMS if s != HMAS and s not in CLAIRVOYANTS}
        best = max(others, key=others.__getitem__)
        goals.append(
            Goal(
                f"H-MAS is best of all that are not clairvoyant at {load:g}",
                f"{100 * kept(HMAS, load):.1f} %, next {best} {100 * others[best]:.1f} %",
                kept(HMAS, load) >= others[best],
            )
        )
    ratio = kept(HMAS, 0.8) / kept(FCFS, 0.8)
    goals.append(Goal("H-MAS ≥ 0.98 of FCFS at 0.8", f"{ratio:.3f}", ratio >= 0.98))
    gains = [100 * (kept(HMAS, load) - kept(TABLE, load)) for load in VARIANTS]
    at_loads = " and ".join(f"{load:g}" for load in VARIANTS)
    found = " and ".join(f"{gain:+.1f}" for gain in gains)
    goals.append(
        Goal(f"H-MAS's forecast is worth more than Eq. 8's medians at {at_loads}", f"{found} points", min(gains) > 0.0)
    )
    waste = at[plain, 1.4, HMAS].wasted / at[plain, 1.4, MAESTRO].wasted
    goals.append(Goal("H-MAS wastes ≤ 0.7 of what Maestro does at 1.4", f"{waste:.2f}", waste <= 0.7))
    return goals


def alike(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Returns the pairs of systems that keep exactly the same jobs at every point."""
    kept = defaultdict[str, dict[Point, float]](dict)
    for row in rows:
        kept[row.system][row.workload, row.load] = row.job_goodput
    return [(one, other) for one, other in combinations(kept, 2) if kept[one] == kept[other]]


def page_of(
    rows: Sequence[Row], found: Sequence[tuple[JobCell, Mapping[str, Any]]], seconds: float
) -> dict[str, object]:
    rates = {cell.workload: figures["jobs_per_s"] for cell, figures in found if cell.kind == "capacity"}
    without, cached = goals_of(rows, False), goals_of(rows, True)
    return {
        "alike": alike(rows), "profile": PROFILE, "sequences": SEQUENCES, "engines": ENGINES,
        "seeds": max(row.seeds for row in rows), "seconds": f"{seconds:g}",
        "bounds": told(figures for _, figures in found),
        "rates": [(name, f"{rate:.2f}") for name, rate in rates.items()],
        "reached": [sum(goal.met is True for goal in half) for half in (without, cached)],
        "goals": [(a.words, *_told(a), *_told(b)) for a, b in zip(without, cached, strict=True)],
    }  # fmt: skip


def _told(goal: Goal) -> tuple[str, str]:
    return goal.found, "yes" if goal.met else "**no**"


STUDY = Study(
    name="maestro",
    about="Measures orders of jobs on generated workflows in a closed loop (Maestro's Fig. 7). It takes about two "
    "hours of one core and needs --data with agentic/ and prompts/.",
    takes=("out", "seeds", "seconds", "processes", "cells", "data"),
    defaults=Options(seconds=600.0),
    cells=cells,
    compute=compute,
    given=given,
    code=code_of,
    rows=lambda options, found: rows_of(finished(options, found)),
    values=lambda rows, options, found: page_of(rows, finished(options, found), options.seconds),
)
