"""Writes the page of plans: what each system's plans keep on time, under each way to serve them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.paired import Paired, paired
from experiments.plans.cases import (
    ALONE,
    BURSTS,
    BURSTY,
    CARDS,
    CASES,
    LOAD,
    LOOSE,
    SERIES,
    SMALL,
    SMALL_WIDE,
    TRACE,
    TWO,
    WIDE,
    PlanCase,
)
from experiments.plans.planning import (
    ALPASERVE,
    LIMITS,
    MAASO,
    MAASO_SLO,
    ONE_SIZE,
    ONE_TYPE,
    OURS,
    SAMPLE,
    SR,
    SYSTEMS,
)
from experiments.plans.runs import (
    CLASSES,
    DISTRIBUTOR,
    FCFS,
    MESH,
    OWN,
    PLANNED,
    QUICK,
    SERIES_SEEDS,
    PlanRow,
    PlansCell,
    cells,
    compute,
    plan_cell,
    rows_of,
)
from experiments.study import Finished, Options, Study
from hmas_lab.sim.provenance import source_digest

NAMES = {
    SR: "Selective Replication", ALPASERVE: "AlpaServe's space", MAASO: "MaaSO", MAASO_SLO: "MaaSO*",
    ONE_SIZE: "best one size for all", ONE_TYPE: "best one size a model", OURS: "ours",
}  # fmt: skip
WAYS = (FCFS, CLASSES, DISTRIBUTOR, QUICK, PLANNED, MESH)
SAID = {TRACE: "trace", CARDS: "cards", BURSTS: "bursts", LOAD: "load"}
ENOUGH = 0.95  # share on time for which cards are counted
ROOTS = (
    "hmas.laws.placement.fluid_bound", "hmas.laws.placement.plan_search", "hmas.runtime.catalogue_file",
    "hmas.sim.quick", "hmas_lab.placement.maaso", "hmas_lab.placement.one_type", "hmas_lab.placement.serving",
)  # fmt: skip


class Table:
    """The rows, by case, system and way."""

    def __init__(self, rows: Iterable[PlanRow]) -> None:
        self._rows = {(row.series, row.case, row.system, row.way): row for row in rows}

    def get(self, case: PlanCase, system: str, way: str) -> PlanRow | None:
        return self._rows.get((case.series, case.name, system, way))

    def share(self, case: PlanCase, system: str, way: str) -> str:
        row = self.get(case, system, way)
        return f"{row.share:.3f}" if row else ""

    def one_type(self, case: PlanCase) -> PlanRow | None:
        """Returns the better of the plans with one size for all and with one size a model, under our order."""
        rows = [row for system in (ONE_SIZE, ONE_TYPE) if (row := self.get(case, system, PLANNED)) is not None]
        return max(rows, key=lambda row: row.share, default=None)

    def gain(self, case: PlanCase) -> Paired | None:
        """Returns what ours keeps on time beyond the best with one size, over the seeds that both have."""
        ours, other = self.get(case, OURS, PLANNED), self.one_type(case)
        if ours is None or other is None or len(ours.shares) != len(other.shares):
            return None
        return paired(ours.shares, other.shares)


def goals_of(rows: Sequence[PlanRow]) -> list[Goal]:
    """Judges the goals: means over the seeds in the simulated mesh, with gains paired by seed."""
    table = Table(rows)
    found = [
        _level(table, TWO, 0.925),
        _gained(table, TWO, 0.03),
        _level(table, WIDE, 0.95),
        _gained(table, WIDE, 0.09),
        _used(table, WIDE),
        _level(table, SMALL_WIDE, 0.86),
        _level(table, BURSTY, 0.87),
        _level(table, ALONE, 0.98),
        _gained(table, LOOSE, -0.01),
    ]
    loose, small = table.get(LOOSE, OURS, QUICK), table.get(SMALL, OURS, QUICK)
    enough = loose.enough if loose else None
    told = "it says so" if enough else "it does not say so"
    found.append(Goal(f"{LOOSE.name}: the search says that one size is enough", told, enough))
    picked = small.engines if small else ""
    found.append(Goal(f"{SMALL.name}: two of four cards", picked, picked == "llama 2 x 4" if small else None))
    maaso, alpaserve = table.get(TWO, MAASO, DISTRIBUTOR), table.get(TWO, ALPASERVE, FCFS)
    words = f"{TWO.name}: MaaSO is 15 points and more above AlpaServe, each served its own way, as its paper says"
    if maaso is None or alpaserve is None or len(maaso.shares) != len(alpaserve.shares):
        return [*found, Goal(words, "", None)]
    claim = paired(maaso.shares, alpaserve.shares)
    return [*found, Goal(words, points(claim), claim.mean >= 0.15)]


def points(gain: Paired) -> str:
    spread = f" ± {100.0 * gain.half:.1f}" if gain.half != float("inf") else ""
    return f"{100.0 * gain.mean:+.1f}{spread} points"


def _level(table: Table, case: PlanCase, least: float) -> Goal:
    row = table.get(case, OURS, PLANNED)
    words = f"{case.name}: at least {least:g} on time"
    return Goal(words, f"{row.share:.3f}" if row else "", row.share >= least if row else None)


def _gained(table: Table, case: PlanCase, least: float) -> Goal:
    gain = table.gain(case)
    words = f"{case.name}: {100 * least:+g} points or better against the best one size, under our order"
    return Goal(words, points(gain) if gain else "", gain.mean >= least if gain else None)


def _used(table: Table, case: PlanCase) -> Goal:
    row = table.get(case, OURS, QUICK)
    words = f"{case.name}: no card is idle"
    return Goal(words, f"{row.cards} of {case.gpus} are used" if row else "", row.cards == case.gpus if row else None)


def page_of(rows: Sequence[PlanRow], options: Options, found: Finished) -> dict[str, Any]:
    table = Table(rows)
    judged = [goal.met for goal in goals_of(rows)]
    cases = [_case(table, case) for case in CASES if table.get(case, OURS, QUICK)]
    plans = [plan for case in (*CASES, *SERIES) if (plan := found.get(plan_cell(case))) is not None]
    return {
        "held": judged.count(True), "missed": judged.count(False), "open": judged.count(None), "cases": cases,
        "ways": [_ways(table, case) for case in CASES if table.get(case, OURS, QUICK)], "series": _series(table),
        "cards": _cards_for(table), "bounds": _bounds(found), "seeds": options.seeds, "series_seeds": SERIES_SEEDS,
        "runs": sorted({(case.name, case.seconds, case.judged_s) for case in CASES}), "limits": LIMITS,
        "sample": SAMPLE, "enough": ENOUGH, "latency": _latency(table), "solvers": _solvers(plans),
        "seen": max((len(row.shares) for row in rows if not row.series), default=0),
    }  # fmt: skip


def _case(table: Table, case: PlanCase) -> tuple[str, ...]:
    gain, one = table.gain(case), table.one_type(case)
    return (
        case.name, table.share(case, SR, FCFS), table.share(case, ALPASERVE, FCFS),
        table.share(case, MAASO, DISTRIBUTOR), table.share(case, MAASO, PLANNED), f"{one.share:.3f}" if one else "",
        table.share(case, OURS, PLANNED), points(gain) if gain else "",
    )  # fmt: skip


def _ways(table: Table, case: PlanCase) -> dict[str, Any]:
    rows = []
    for system in SYSTEMS:
        row = table.get(case, system, QUICK) or table.get(case, system, FCFS)
        if row is not None:
            shares = [table.share(case, system, way) for way in WAYS]
            rows.append((NAMES[system], f"{row.engines} ({row.cards})", *shares))
    return {"title": case.name, "rows": rows}


def _series(table: Table) -> list[dict[str, Any]]:
    found = []
    for axis, title in SAID.items():
        rows = [
            (case.name, *(table.share(case, system, OWN[system]) for system in OWN))
            for case in SERIES
            if case.series == axis and table.get(case, OURS, QUICK)
        ]
        if rows:
            found.append({"title": title, "header": (title, *(NAMES[system] for system in OWN)), "rows": rows})
    return found


def _cards_for(table: Table) -> list[tuple[str, ...]]:
    """Returns the fewest cards of those that were tried with which each system keeps `ENOUGH` on time."""
    found = []
    for title, trace in (("two models, t4", "t4"), ("three models, t9", "t9")):
        cases = [case for case in SERIES if case.series == CARDS and case.trace == trace]
        if any(table.get(case, OURS, QUICK) for case in cases):
            found.append((title, *(_fewest(table, cases, system) for system in OWN)))
    return found


def _fewest(table: Table, cases: Sequence[PlanCase], system: str) -> str:
    rows = {case.gpus: row for case in cases if (row := table.get(case, system, OWN[system])) is not None}
    enough = [gpus for gpus, row in rows.items() if row.share >= ENOUGH]
    return str(min(enough)) if enough else f"more than {max(rows)}" if rows else ""


def _bounds(found: Finished) -> list[tuple[str, str, str]]:
    """Returns of each case what our search expects of its plans, and what no plan exceeds."""
    plans = [(case, found.get(plan_cell(case))) for case in CASES]
    return [(case.name, f"{p['expected']:.3f}", f"{p['bound']:.3f}") for case, p in plans if p is not None]


def _latency(table: Table) -> list[tuple[str, ...]]:
    """Returns the mean time to the first token and the mean speed of an answer of each system in the first case."""
    rows: list[tuple[str, ...]] = []
    for system in SYSTEMS:
        way = OWN.get(system, PLANNED)
        row = table.get(TWO, system, PLANNED if way == QUICK else way)
        if row is not None and row.latency_s is not None and row.tokens_per_s is not None:
            rows.append((NAMES[system], row.way, f"{row.latency_s:.2f}", f"{row.tokens_per_s:.0f}"))
    return rows


def _solvers(plans: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns the most CPU seconds that each system took for the plans of a case."""
    most: dict[str, float] = {}
    for plan in plans:
        for system, cpu_s in plan["cpu_s"].items():
            most[system] = max(most.get(system, 0.0), cpu_s)
    return [(NAMES[system], f"{most[system]:.1f}") for system in SYSTEMS if system in most]


@cache
def _digest() -> str:
    return source_digest(ROOTS)


def code(cell: PlansCell) -> str:
    """Returns the digest of the code on which plans and runs depend, and of the catalogue."""
    return _digest()


STUDY: Study[PlansCell, PlanRow] = Study(
    name="plans",
    about="Which engines a budget of cards should run: MaaSO, its baselines and our search, under each way to serve.",
    template=Path(__file__).with_name("plans.md.j2"),
    takes=("out", "seeds", "processes", "cells", "only", "pages_only"),
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (),
    code=code,
    rows=rows_of,
    goals=goals_of,
    values=page_of,
)
