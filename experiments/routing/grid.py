"""Which runs the comparison of routers consists of, and how they are made one after the other: each is kept when it is
finished, so that an interrupted comparison goes on where it was."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from experiments.routing import many
from experiments.routing.measure import POOLED, RoutingCell, measure
from experiments.routing.rules import HMAS, RULES
from experiments.routing.workloads import KINDS, LOOPS, MOONCAKE
from experiments.study import Figures, Finished, Options
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.cells import compute as simulate
from hmas_lab.sim.provenance import WITH_MESH, source_digest
from hmas_lab.sim.stored import Stored

TARGET = 0.95  # of jobs that keep their SLOs, at least outstanding: what λ*_job is the highest rate for
BASELINE = "least outstanding"
PRECISION = 0.1
CAPACITY_SEED = 9001
LOADS = (1.2, 0.8)
GUESSES = {LOOPS: 30.0, MOONCAKE: 7.0, "shared 8k root": 60.0, "no sharing": 40.0}  # where the search begins
GATEWAYS = (1, 8, 16)
SECONDS = {LOOPS: 0.5, MOONCAKE: 15.0, "shared 8k root": 1.0, "no sharing": 1.0}  # of each run, in its given length
PARTS = ("routers", "gateways", "many")
SEEDS = 3  # times as many where routers are compared in runs of less than a minute, which differ by 28 points

L = TypeVar("L")
C = TypeVar("C", RoutingCell, many.ManyCell)


def digest(_: object) -> str:
    """Returns the digest of all code that a run depends on."""
    own = sorted(Path(__file__).parent.glob("*.py"))
    rules = "".join(path.read_text(encoding="utf-8") for path in own if path.stem not in ("plan", "__init__"))
    return f"{source_digest(WITH_MESH)}-{sha256(rules.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Plan:
    """`seconds`: the length of runs, which each workload multiplies by its own factor. `seeds`: of the longest."""

    seeds: int
    seconds: float

    def cell(self, workload: str, rate: float, seed: int, system: str, gateways: int = 1, kill: bool = False) -> Any:
        seconds = self.seconds * SECONDS[workload]
        return RoutingCell(
            workload=workload, rate=rate, seconds=seconds, seed=seed, system=system, gateways=gateways, kill=kill
        )

    def seeds_of(self, workload: str) -> range:
        """Returns the seeds with which routers are compared."""
        return range(1, self.seeds * (1 if workload == MOONCAKE else SEEDS) + 1)

    def routers(self, rates: dict[str, float]) -> list[tuple[float, RoutingCell]]:
        """Returns the runs that compare routers, with their loads in λ*_job."""
        return [
            (load, self.cell(kind, load * rates[kind], seed, system))
            for seed in range(1, SEEDS * self.seeds + 1)
            for load in LOADS
            for kind in rates
            if seed in self.seeds_of(kind)
            for system in (*RULES, POOLED)
        ]

    def gateways(self, rates: dict[str, float]) -> list[tuple[str, RoutingCell]]:
        """Returns the runs with several gateways, each with what it is called."""
        return [
            (name, self.cell(kind, LOADS[-1] * rates[kind], seed, HMAS, gateways, kill))
            for seed in range(1, self.seeds + 1)
            for kind in (LOOPS, MOONCAKE)
            if kind in rates
            for name, gateways, kill in (*((f"{n} gateways", n, False) for n in GATEWAYS), ("8, one killed", 8, True))
        ]

    def every(self, rates: dict[str, float]) -> list[Stored]:
        """Returns all runs."""
        found = [cell for _, cell in (*self.routers(rates), *self.gateways(rates))]
        return [*found, *many.cells(range(1, self.seeds + 1), self.seconds)]


def search(found: Finished, plan: Plan, kind: str) -> Generator[list[RoutingCell], None, float | None]:
    """Yields the runs that the search for λ*_job of a workload lacks, one at a time, and returns it, to `PRECISION`;
    None if one that was asked for is not made."""
    low, high, factor = 0.0, 0.0, 1.4
    rate = GUESSES[kind]
    for _ in range(24):
        cell = plan.cell(kind, rate, CAPACITY_SEED, BASELINE)
        if found.get(cell) is None:
            yield [cell]
        if (figures := found.get(cell)) is None:
            return None
        if figures["job_goodput"] >= TARGET:
            low = rate
            rate = (low + high) / 2.0 if high else rate * factor
        else:
            high = rate
            rate = (low + high) / 2.0 if low else rate / factor
        if low and high and high - low <= PRECISION * low:
            return low
    return None


def rates_of(found: Finished, plan: Plan) -> dict[str, float]:
    """Returns λ*_job by workload, as far as it was found."""
    rates = {}
    for kind in KINDS:
        running = search(found, plan, kind)
        try:
            next(running)
        except StopIteration as ended:
            if ended.value is not None:
                rates[kind] = ended.value
    return rates


def cells(options: Options, found: Finished) -> Iterator[Sequence[Any]]:
    """Yields the runs of the parts that are asked for: `gateways`, `routers`, `many` (workers and gateways)."""
    data, plan, parts = options.agentic("traces"), Plan(options.seeds, options.seconds), options.only or PARTS
    if unknown := set(parts) - set(PARTS):
        raise ValueError(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if set(parts) != {"many"}:
        for kind in KINDS:
            yield from search(found, plan, kind)
    rates = rates_of(found, plan)
    if "gateways" in parts:
        yield [cell for _, cell in plan.gateways(rates)]
    if "routers" in parts:
        yield [cell for _, cell in plan.routers(rates)]
    if "many" in parts:
        shapes = many.cells(options.numbers, options.seconds)
        yield list({cell.workload: cell.capacity(data) for cell in shapes}.values())
        yield shapes


def compute(cell: RoutingCell | many.ManyCell | Cell, *more: Any) -> Figures:
    match cell:
        case Cell():
            return simulate(cell)
        case many.ManyCell():
            return many.measure(cell, *more)
        case _:
            return measure(cell, *more)


def given(cell: RoutingCell | many.ManyCell | Cell, options: Options, found: Finished) -> tuple[Any, ...]:
    """Returns what `compute` needs beside the cell: the folder of data, and before it the rate of a `ManyCell`."""
    data = options.agentic("traces")
    match cell:
        case Cell():
            return ()
        case many.ManyCell():
            capacity = found.get(cell.capacity(data))
            assert capacity is not None
            return cell.load * capacity["rate_rps"], data
        case _:
            return (data,)


def mean_of(store: Finished, cells: Iterable[Stored]) -> dict[str, float] | None:
    """Returns the means of the figures of the finished runs among these, and how many there are as `seeds`."""
    found = [figures for cell in cells if (figures := store.get(cell)) is not None]
    if not found:
        return None
    names = [name for name, value in found[0].items() if isinstance(value, int | float)]
    return {name: fmean(figures[name] for figures in found) for name in names} | {"seeds": len(found)}


def by_seed(cells: Iterable[tuple[L, C]]) -> Iterator[tuple[tuple[L, C], list[C]]]:
    """Yields the groups of runs that differ only by their seed, with their label."""
    groups: dict[tuple[L, C], list[C]] = {}
    for label, cell in cells:
        groups.setdefault((label, replace(cell, seed=0)), []).append(cell)
    yield from groups.items()
