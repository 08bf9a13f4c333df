"""Runs of one pool on the engines of a plan, under each way to serve it. Equal runs of several plans are made once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import process_time
from typing import Any

from experiments.plans.cases import CASES, SERIES, PlanCase, kinds_of
from experiments.plans.planning import (
    ALPASERVE,
    MAASO,
    MAASO_SLO,
    ONE_TYPE,
    OURS,
    SR,
    SYSTEMS,
    PlacedEngines,
    PlanCell,
    compute_plans,
    demand_of,
    engines_from,
)
from experiments.study import Figures, Finished, Options
from hmas.contracts.control import Split
from hmas.laws.placement.demand import in_order
from hmas.laws.scoring import is_ok
from hmas.sim.quick import QuickSim
from hmas_lab.placement.serving import Way, served
from hmas_lab.placement.traces import PoolTraffic, traffic_workload
from hmas_lab.sim.stored import cell_key

QUICK = "quick"  # our order by the quick simulation
FCFS, CLASSES, DISTRIBUTOR = Way.FCFS.value, Way.CLASSES.value, Way.DISTRIBUTOR.value
MESH, PLANNED = Way.MESH.value, Way.PLANNED.value
OWN = {SR: FCFS, ALPASERVE: FCFS, MAASO: DISTRIBUTOR, MAASO_SLO: DISTRIBUTOR, ONE_TYPE: QUICK, OURS: QUICK}
SERIES_SEEDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRun:
    """One run of a pool's traffic on engines: names of types with a batch limit, 0 for that of the type, and how many
    of each. `way` is one of `Way` or `QUICK`. Requests after `judged_s` are judged."""

    traffic: PoolTraffic
    groups: tuple[tuple[str, int, int], ...]
    cuts_s: tuple[float, ...]
    counts: tuple[int, ...]
    way: str
    seed: int
    seconds: float
    judged_s: float

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.traffic.pool} {self.traffic.trace} on {len(self.groups)} groups, {self.way}, seed {self.seed}"


PlansCell = PlanCell | PoolRun


def run_of(case: PlanCase, engines: PlacedEngines, way: str, seed: int) -> PoolRun:
    """Returns the run of a pool's engines. Only MaaSO's distributor needs the plan's batch limits, which would make
    requests wait under every other way. The classes are the plan's own, or those of our layout where it has none; our
    order has its layout, as a mesh has that is started with a plan; and neither FCFS nor a mesh without a plan, which
    lays out by itself, is told a split."""
    groups, split = _in_order(engines.pool, engines.groups), Split()
    if way == DISTRIBUTOR:
        groups, split = engines.groups, engines.own
    elif way == CLASSES and engines.own.cuts_s:
        groups, split = tuple((name, count, 0) for name, count, _ in engines.groups), engines.own
    elif way in (CLASSES, QUICK, PLANNED):
        split = engines.layout
    return PoolRun(
        traffic=case.traffic(engines.pool), groups=groups, cuts_s=split.cuts_s, counts=split.engines, way=way,
        seed=seed, seconds=case.seconds, judged_s=case.judged_s,
    )  # fmt: skip


def _in_order(pool: str, groups: Sequence[tuple[str, int, int]]) -> tuple[tuple[str, int, int], ...]:
    """Returns the groups in the order of their steps, with those of one type together."""
    counts: dict[str, int] = {}
    for name, count, _ in groups:
        counts[name] = counts.get(name, 0) + count
    ordered = in_order([kind for kind in kinds_of(pool) if kind.name in counts])
    return tuple((kind.name, counts[kind.name], 0) for kind in ordered)


def ways_of(case: PlanCase, system: str) -> tuple[str, ...]:
    """Returns under which ways the plans of a system are run: in a series, its own one alone. Only our plans are also
    given to a mesh that is not told their split."""
    if case.series:
        return (OWN[system],) if system in OWN else ()
    more = (DISTRIBUTOR,) if system in (MAASO, MAASO_SLO) else (MESH,) if system == OURS else ()
    return (FCFS, CLASSES, QUICK, PLANNED, *more)


def systems_of(case: PlanCase) -> tuple[str, ...]:
    return tuple(system for system in SYSTEMS if not case.series or system in OWN)


def plan_cell(case: PlanCase) -> PlanCell:
    return PlanCell(case=case, only=systems_of(case))


def chosen_cases(options: Options) -> tuple[PlanCase, ...]:
    """Returns the cases that the options name: `cases`, `series`, or cases by their names. Raises ValueError for
    another name."""
    known = {"cases": CASES, "series": SERIES, **{case.name: (case,) for case in CASES}}
    if unknown := [name for name in options.only if name not in known]:
        raise ValueError(f"no part {', '.join(unknown)}: there are {', '.join(known)}")
    return tuple(dict.fromkeys(case for name in options.only or ("cases", "series") for case in known[name]))


def runs_of(case: PlanCase, found: Finished, seeds: Sequence[int]) -> list[PoolRun]:
    """Returns the runs of a case whose plans are made; none where they are not."""
    if (plans := found.get(plan_cell(case))) is None:
        return []
    used = seeds[:SERIES_SEEDS] if case.series else seeds
    return [
        run_of(case, engines, way, seed)
        for seed in used
        for system in systems_of(case)
        for engines in map(engines_from, plans["plans"][system])
        if engines.groups
        for way in ways_of(case, system)
    ]


def cells(options: Options, found: Finished) -> Iterator[Sequence[PlansCell]]:
    """Yields the plans of a case and then its runs, case by case, so that what is interrupted has whole cases."""
    for case in chosen_cases(options):
        yield [plan_cell(case)]
        yield runs_of(case, found, list(options.numbers))


def compute(cell: PlansCell) -> Figures:
    return compute_plans(cell) if isinstance(cell, PlanCell) else compute_run(cell)


def compute_run(cell: PoolRun) -> Figures:
    """Returns how many requests are judged and how many of them were on time, and sums over those that were served of
    the seconds to their first token and of their tokens per second."""
    began_s = process_time()
    workload = traffic_workload((cell.traffic,), cell.seconds, cell.seed)
    kinds = kinds_of(cell.traffic.pool)
    limited = any(limit for _, _, limit in cell.groups)
    split = Split(cell.cuts_s, cell.counts)
    instances = PlacedEngines(cell.traffic.pool, cell.groups, split, split).instances(kinds, limited=limited)
    if cell.way == QUICK:
        demand = demand_of(cell.traffic.pool, kinds[0].model, workload)
        on_time = QuickSim(demand, instances, split, seed=cell.seed).run()
        late = [ok for ok, r in zip(on_time, workload.requests, strict=True) if r.request.arrival_s >= cell.judged_s]
        return {"requests": len(late), "on_time": sum(late), "cpu_s": process_time() - began_s}
    ends = [s for s in served(Way(cell.way), workload, instances, split, cell.seed) if s.offered_s >= cell.judged_s]
    done = [s for s in ends if s.ttft_s is not None and s.tpot_s]
    return {
        "requests": len(ends),
        "on_time": sum(map(is_ok, ends)),
        "served": len(done),
        "first_s": sum(s.ttft_s or 0.0 for s in done),
        "tokens_per_s": sum(1.0 / (s.tpot_s or 1.0) for s in done),
        "cpu_s": process_time() - began_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A system's plans for a case under one way to serve them.

    `shares` on time, one for each seed, over the judged requests of all pools. `latency_s` is the mean time to the
    first token and `tokens_per_s` the mean speed of an answer, of the requests that were served; None for the quick
    simulation. `engines` tells the plans, `cards` how many they take, and `solver_s` the CPU seconds that they took.
    """

    case: str
    series: str
    gpus: int
    system: str
    way: str
    shares: list[float]
    latency_s: float | None
    tokens_per_s: float | None
    engines: str
    cards: int
    solver_s: float
    enough: bool | None = None

    @property
    def share(self) -> float:
        return fmean(self.shares)


def rows_of(options: Options, found: Finished) -> list[PlanRow]:
    """Returns the rows of which at least one seed is finished; a seed is left out where a run of it is missing."""
    rows = []
    for case in (*CASES, *SERIES):
        if (plans := found.get(plan_cell(case))) is None:
            continue
        for system in systems_of(case):
            own = [engines_from(each) for each in plans["plans"][system]]
            made = (_row(case, system, way, own, plans, found, options) for way in ways_of(case, system))
            rows += [row for row in made if row is not None]
    return rows


def _row(
    case: PlanCase, system: str, way: str, own: Sequence[PlacedEngines], plans: Mapping[str, Any], found: Finished,
    options: Options,
) -> PlanRow | None:  # fmt: skip
    shares, every = [], []
    for seed in list(options.numbers)[: SERIES_SEEDS if case.series else None]:
        runs = [found.get(run_of(case, engines, way, seed)) if engines.groups else {} for engines in own]
        if any(run is None for run in runs):
            continue
        # A pool without engines keeps nothing; another way tells how many requests it has.
        requests = sum(
            run["requests"] if run else _requests(case, engines.pool, seed)
            for run, engines in zip(runs, own, strict=True)
            if run is not None
        )
        shares.append(sum(run.get("on_time", 0) for run in runs if run) / max(1, requests))
        every += [run for run in runs if run]
    if not shares:
        return None
    done = sum(run.get("served", 0) for run in every)
    sizes = {kind.name: kind.gpus for pool in own for kind in kinds_of(pool.pool)}
    return PlanRow(
        case=case.name, series=case.series, gpus=case.gpus, system=system, way=way, shares=shares,
        latency_s=sum(run["first_s"] for run in every) / done if done else None,
        tokens_per_s=sum(run["tokens_per_s"] for run in every) / done if done else None,
        engines="; ".join(f"{each.pool} {_told(each, sizes)}" for each in own),
        cards=sum(sizes[name] * count for each in own for name, count, _ in each.groups),
        solver_s=plans["cpu_s"][system], enough=plans.get("one_type_is_enough") if system == OURS else None,
    )  # fmt: skip


def _requests(case: PlanCase, pool: str, seed: int) -> int:
    workload = traffic_workload((case.traffic(pool),), case.seconds, seed)
    return sum(each.request.arrival_s >= case.judged_s for each in workload.requests)


def _told(engines: PlacedEngines, sizes: Mapping[str, int]) -> str:
    return " + ".join(f"{count} x {sizes[name]}" for name, count, _ in engines.groups) or "none"
