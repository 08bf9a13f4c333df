"""What deadlines are worth where models take turns on a card, beside rules that know none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.paired import paired
from experiments.residency.measure import (
    COLLATED,
    LOADS,
    OTHERS,
    OURS,
    SECONDS,
    SYSTEMS,
    HostCell,
    cell,
    cells,
    code_of,
    compute,
)
from experiments.residency.models import COLD_S
from experiments.residency.rivals import IDLE_S
from experiments.study import Finished, Options, Study

GAINS = {("five", 0.06): (5.0, 0.0), ("five", 0.04): (1.5, -inf), ("twelve", 0.06): (10.0, -inf)}
SHOWN = {"five": "five models, 40 GB", "twelve": "twelve models, four places of 80 GB"}


@dataclass(frozen=True, slots=True)
class HostRow:
    """The figures of a system with each seed that it was run with."""

    card: str
    jobs_per_s: float
    system: str
    seeds: tuple[int, ...]
    shares: tuple[float, ...]
    mean_s: float
    wakes: float
    interrupts: float
    cached: float


Systems = Mapping[str, HostRow]


def rows_of(options: Options, found: Finished) -> list[HostRow]:
    """Returns a row for each system that has a run."""
    rows: list[HostRow] = []
    for card, jobs_per_s in LOADS:
        for system in SYSTEMS:
            ran = [(seed, found.get(cell(card, jobs_per_s, system, seed, options.data))) for seed in options.numbers]
            runs = [(seed, run) for seed, run in ran if run]
            if runs:
                means = [fmean(run[name] for _, run in runs) for name in ("mean_s", "wakes", "interrupts", "cached")]
                seeds, shares = tuple(seed for seed, _ in runs), tuple(run["share"] for _, run in runs)
                rows.append(HostRow(card, jobs_per_s, system, seeds, shares, *means))
    return rows


def by_load(rows: Sequence[HostRow]) -> dict[tuple[str, float], Systems]:
    """Returns the systems of each load at which ours and the one that it is compared with have run."""
    found: dict[tuple[str, float], dict[str, HostRow]] = {}
    for row in rows:
        found.setdefault((row.card, row.jobs_per_s), {})[row.system] = row
    return {load: systems for load, systems in found.items() if {OURS, COLLATED} <= set(systems)}


def over(systems: Systems, system: str, base: str) -> tuple[list[float], list[float]]:
    """Returns the shares of two systems with the seeds that both have."""
    one, other = (dict(zip(systems[name].seeds, systems[name].shares, strict=True)) for name in (system, base))
    both = sorted(set(one) & set(other))
    return [one[seed] for seed in both], [other[seed] for seed in both]


def _told(systems: Systems, system: str, base: str) -> str:
    ours, theirs = over(systems, system, base)
    difference = paired(ours, theirs)
    spread = f" ± {100 * difference.half:.1f}" if difference.half < inf else ""
    return f"{100 * difference.mean:+.1f}{spread}"


def goals_of(rows: Sequence[HostRow]) -> list[Goal]:
    found, goals = by_load(rows), list[Goal]()
    for load, (mean, worst) in GAINS.items():
        words = f"{SHOWN[load[0]]}, {load[1]:g} jobs/s: {mean:+g} points over {COLLATED}"
        words += f", {worst:+g} with each seed" if worst > -inf else ""
        if load not in found:
            goals.append(Goal(words, "", None))
            continue
        ours, theirs = over(found[load], OURS, COLLATED)
        gains = [100 * (a - b) for a, b in zip(ours, theirs, strict=True)]
        told = f"{fmean(gains):+.1f} points, {min(gains):+.1f} at least ({len(gains)} seeds)"
        goals.append(Goal(words, told, fmean(gains) >= mean and min(gains) >= worst))
    return goals


def page_of(rows: Sequence[HostRow], options: Options, found: Finished) -> dict[str, Any]:
    loads = by_load(rows)
    return {
        "table_rows": [
            (SHOWN[card], f"{rate:g}", row.system, f"{fmean(row.shares):.3f}", f"{row.mean_s:.1f}", f"{row.wakes:.0f}",
             f"{row.interrupts:.0f}", f"{row.cached:.2f}", str(len(row.seeds)))
            for (card, rate), systems in loads.items() for row in systems.values()
        ],
        "summary": [
            (SHOWN[card], f"{rate:g}", f"{fmean(over(systems, COLLATED, OURS)[0]):.3f}",
             f"{fmean(over(systems, OURS, COLLATED)[0]):.3f}", _told(systems, OURS, COLLATED),
             str(len(over(systems, OURS, COLLATED)[0])))
            for (card, rate), systems in loads.items()
        ],
        "parts": [
            (SHOWN[card], f"{rate:g}", system, _told(systems, OURS, system), str(len(over(systems, OURS, system)[0])))
            for (card, rate), systems in loads.items() for system in OTHERS if system in systems
        ],
        "gains": [100 * paired(*over(systems, OURS, COLLATED)).mean for systems in loads.values()],
        "seconds": SECONDS, "idle_s": IDLE_S, "cold_s": COLD_S,
    }  # fmt: skip


STUDY: Study[HostCell, HostRow] = Study(
    name="residency",
    about="What deadlines are worth where models take turns on a card.",
    takes=("out", "seeds", "processes", "cells", "data", "pages_only"),
    template=Path(__file__).parents[1] / "report" / "residency.md.j2",
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (),
    code=code_of,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)
