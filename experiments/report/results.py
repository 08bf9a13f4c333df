"""Looks up the stored results of an experiment by workload, load and system, averaged over seeds."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from experiments.execute import cells_of
from experiments.length_bounds import of_cell
from experiments.study import Finished
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.experiment import Experiment
from hmas_lab.sim.sources import WorkloadSpec

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A figure over `count` seeds: its mean, nan if there are none, and its spread, the standard deviation."""

    mean: float
    spread: float
    count: int

    def text(self, digits: int = 3, scale: float = 1.0) -> str:
        if self.count == 0 or self.mean != self.mean:
            return "not measured" if self.count == 0 else "undefined"
        shown = f"{self.mean * scale:.{digits}f}"
        return shown if self.count == 1 else f"{shown} ± {self.spread * scale:.{digits}f}"


def value(numbers: list[float]) -> Value:
    clean = [x for x in numbers if x == x]
    if not clean:
        return Value(float("nan"), 0.0, len(numbers))
    return Value(fmean(clean), stdev(clean) if len(clean) > 1 else 0.0, len(clean))


class CellResults:
    """The stored results of one experiment. `missing` lists the cells that have none; `cpu_s` holds the CPU seconds of
    each cell by its key."""

    def __init__(self, experiment: Experiment, store: Finished) -> None:
        self.experiment = experiment
        self._runs: dict[tuple[str, float, float, str], list[Row]] = {}
        self._capacities: dict[tuple[str, float], Row] = {}
        self.cpu_s: dict[str, float] = {}  # by key, because experiments share cells
        self.missing: list[Cell] = []
        for cell in cells_of(experiment):
            found = store.get(cell)
            if found is None:
                self.missing.append(cell)
                continue
            self.cpu_s[cell.key()] = found["cpu_s"]
            spec = cell.workload
            self._runs.setdefault((spec.name, spec.duration_s, cell.load, cell.system), []).append(found)
            capacity = None if cell.absolute else store.get(cell.capacity)
            if capacity is not None:
                self._capacities[(spec.name, spec.duration_s)] = capacity
                self.cpu_s[cell.capacity.key()] = capacity["cpu_s"]

    @property
    def seeds(self) -> int:
        return len(self.experiment.seeds)

    def settings(self) -> Iterator[tuple[WorkloadSpec, float]]:
        """Yields every pair of a workload and a load."""
        for spec in self.experiment.workloads:
            for load in self.experiment.loads:
                yield spec, load

    def runs(self, spec: WorkloadSpec, load: float, system: str) -> list[Row]:
        """Returns the results of the runs, one per seed; empty if there are none."""
        return self._runs.get((spec.name, spec.duration_s, load, system), [])

    def get(self, spec: WorkloadSpec, load: float, system: str, *path: str) -> Value:
        """Returns a figure of the runs by its keys in their results, such as `score`, `goodput_rate`."""
        return value([_at(row, path) for row in self.runs(spec, load, system)])

    def bound(self, spec: WorkloadSpec, load: float) -> Value:
        """Returns the goodput rate that no scheduler can exceed."""
        return self.get(spec, load, "", "goodput_rate")

    def share_of_bound(self, spec: WorkloadSpec, load: float, system: str) -> Value:
        pairs = self._pairs(spec, load, system, "")
        return value([_quotient(row["score"]["goodput_rate"], limit["goodput_rate"]) for row, limit in pairs])

    def ratio(self, spec: WorkloadSpec, load: float, system: str, over: str, *path: str) -> Value:
        """Returns the figure at `path` in the results of `system` over that of `over`: mean and spread of the
        quotients of the seeds. A quotient is infinite if only its denominator is 0, and 1 if both are."""
        pairs = self._pairs(spec, load, system, over)
        return value([_quotient(_at(a, path), _at(b, path)) for a, b in pairs])

    def lead(self, spec: WorkloadSpec, load: float, system: str, over: str, *path: str) -> Value:
        """Returns how much higher the figure at `path` is in the results of `system` than in those of `over`: mean and
        spread of the differences of the seeds."""
        return value([_at(a, path) - _at(b, path) for a, b in self._pairs(spec, load, system, over)])

    def _pairs(self, spec: WorkloadSpec, load: float, system: str, other: str) -> list[tuple[Row, Row]]:
        """Returns the results of both systems seed by seed; seeds that only one of them has are left out."""
        theirs = {row["cell"]["seed"]: row for row in self.runs(spec, load, other)}
        ours = self.runs(spec, load, system)
        return [(row, theirs[row["cell"]["seed"]]) for row in ours if row["cell"]["seed"] in theirs]

    def coverage(self) -> tuple[int, float, float]:
        """Returns how many requests our systems admitted in all runs of the experiment, the share of them that outgrew
        their length bound, and the largest such share of one system in one setting; nan without any run."""
        tallies = [
            [total for row in rows if (total := of_cell(row))] for rows in self._runs.values()
        ]  # fmt: skip
        shares = [
            sum(t["outgrown"] for t in same) / admitted
            for same in tallies
            if (admitted := sum(t["admitted"] for t in same))
        ]
        admitted = sum(t["admitted"] for same in tallies for t in same)
        outgrown = sum(t["outgrown"] for same in tallies for t in same)
        return admitted, outgrown / admitted if admitted else float("nan"), max(shares, default=float("nan"))

    def ours(self) -> dict[str, list[Row]]:
        """Returns the results of all runs of each system that has workers of ours."""
        found: dict[str, list[Row]] = {}
        for (*_, system), rows in self._runs.items():
            found.setdefault(system, []).extend(row for row in rows if of_cell(row))
        return {system: rows for system, rows in found.items() if rows}

    def capacity_rps(self, spec: WorkloadSpec) -> float:
        """Returns λ* of a workload in requests per second; nan if unknown."""
        found = self._capacities.get((spec.name, spec.duration_s))
        return float(found["rate_rps"]) if found else float("nan")


def _at(row: dict[str, Any], path: tuple[str, ...]) -> float:
    found: Any = row
    for name in path:
        found = found[name]
    return float("nan") if found is None else float(found)


def _quotient(a: float, b: float) -> float:
    if b == 0.0:
        return 1.0 if a == 0.0 else float("inf")
    return a / b
