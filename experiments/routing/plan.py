"""Which runs the comparison of routers consists of, and how they are made one after the other: each is kept when it is
finished, so that an interrupted comparison goes on where it was."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from experiments.routing import many
from experiments.routing.measure import POOLED, RoutingCell, measure
from experiments.routing.rules import HMAS, RULES
from experiments.routing.workloads import KINDS, LOOPS, MOONCAKE
from hmas.sim.cells import CellStore, compute
from hmas.sim.provenance import WITH_MESH, source_digest
from hmas.sim.stored import Stored

TARGET = 0.95  # of jobs that keep their SLOs, at least outstanding: what λ*_job is the highest rate for
BASELINE = "least outstanding"
PRECISION = 0.1
CAPACITY_SEED = 9001
LOADS = (1.2, 0.8)
GUESSES = {LOOPS: 30.0, MOONCAKE: 7.0, "shared 8k root": 60.0, "no sharing": 40.0}  # where the search begins
GATEWAYS = (1, 8, 16)
SECONDS = {LOOPS: 0.5, MOONCAKE: 15.0, "shared 8k root": 1.0, "no sharing": 1.0}  # of each run, in its given length
SEEDS = 3  # times as many where routers are compared in runs of less than a minute, which differ by 28 points

Say = Callable[[str], None]
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

    def cells(self, rates: dict[str, float]) -> list[Stored]:
        """Returns all runs."""
        found = [cell for _, cell in (*self.routers(rates), *self.gateways(rates))]
        return [*found, *many.cells(range(1, self.seeds + 1), self.seconds)]


def capacity(store: CellStore, plan: Plan, kind: str, data: Path, say: Say, *, stored: bool) -> float | None:
    """Returns λ*_job of a workload, to `PRECISION`. With `stored` nothing is run; None: some run is missing."""

    def keeps(rate: float) -> bool | None:
        cell = plan.cell(kind, rate, CAPACITY_SEED, BASELINE)
        if store.get(cell) is None and not stored:
            store.put(cell, measure(cell, data))
            say(f"λ* of {kind}: {rate:.3g} jobs/s")
        found = store.get(cell)
        return None if found is None else bool(found["job_goodput"] >= TARGET)

    low, high, factor = 0.0, 0.0, 1.4
    rate = GUESSES[kind]
    for _ in range(24):
        kept = keeps(rate)
        if kept is None:
            return None
        if kept:
            low = rate
            rate = (low + high) / 2.0 if high else rate * factor
        else:
            high = rate
            rate = (low + high) / 2.0 if low else rate / factor
        if low and high and high - low <= PRECISION * low:
            return low
    return None


def run(store: CellStore, cells: Sequence[C], processes: int, say: Say, call: Callable[..., Any]) -> None:
    """Makes the runs that are missing."""
    missing = [cell for cell in cells if store.get(cell) is None]
    say(f"{len(missing)} of {len(cells)} runs are to be made")
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for n, (cell, found) in enumerate(zip(missing, pool.map(call, missing), strict=True), 1):
            store.put(cell, found)
            say(f"{n} of {len(missing)}: {cell}")


def measure_many(cell: many.ManyCell, data: Path, rates: dict[str, float]) -> dict[str, Any]:
    return many.measure(cell, cell.load * rates[cell.workload], data)


def many_rate(store: CellStore, cell: many.ManyCell, data: Path, say: Say, *, stored: bool) -> float | None:
    """Returns λ* of a workload; with `stored` nothing is run, and None if it was not found yet."""
    wanted = cell.capacity(data)
    if store.get(wanted) is None and not stored:
        store.put(wanted, compute(wanted))
        say(f"λ* of {cell.workload}")
    found = store.get(wanted)
    return None if found is None else float(found["rate_rps"])


def carry_out(
    store: CellStore, plan: Plan, data: Path, part: str, processes: int, say: Say, *, stored: bool
) -> tuple[dict[str, float], int]:
    """Makes the runs of a part that are missing, unless only what is `stored` counts. Returns λ*_job by workload,
    as far as it was found, and how many runs of all parts are missing."""
    found = {kind: capacity(store, plan, kind, data, say, stored=stored or part == "many") for kind in KINDS}
    rates = {kind: rate for kind, rate in found.items() if rate is not None}
    compared = [cell for _, cell in plan.routers(rates)]
    scaled = [cell for _, cell in plan.gateways(rates)]
    shapes = many.cells(range(1, plan.seeds + 1), plan.seconds)
    if not stored:
        if part in ("all", "gateways"):
            run(store, scaled, processes, say, partial(measure, data=data))
        if part in ("all", "routers"):
            run(store, compared, processes, say, partial(measure, data=data))
        if part in ("all", "many"):
            kinds = {cell.workload: cell for cell in shapes}
            loads = {kind: many_rate(store, cell, data, say, stored=False) or 0.0 for kind, cell in kinds.items()}
            run(store, shapes, processes, say, partial(measure_many, data=data, rates=loads))
    return rates, sum(store.get(cell) is None for cell in plan.cells(rates))


def mean_of(store: CellStore, cells: Iterable[Stored]) -> dict[str, float] | None:
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
