"""Runs, each made once, and the highest rate that violates no more than allowed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.niyama.measure import ALLOWED, QosRun, measure
from experiments.niyama.workload import QosLoad
from hmas.sim.cells import CellStore
from hmas_loadgen.search import ProbedRate, bracket

TOLERANCE = 0.02  # of a goodput
STEP = 1.15
MAX_RUNS = 16


class NiyamaRuns:
    """Figures by run, from the store or measured now."""

    def __init__(self, store: CellStore, data: Path | None, progress: Callable[[str], None]) -> None:
        self._store = store
        self._data = data
        self._progress = progress
        self.seconds = 0.0

    def __call__(self, run: QosRun) -> dict[str, Any]:
        found = self._store.get(run)
        if found is None:
            found = measure(run, self._data)
            self._store.put(run, found)
            load = run.load
            self._progress(f"{run.system} {load.source} {load.rate_rps:.2f}/s: {found['all']:.2%} violated")
        self.seconds += found["cpu_s"]
        return found

    def goodput(self, system: str, load: QosLoad) -> float:
        """The highest rate, searched from the load's, at which at most `ALLOWED` of the requests violate."""

        def kept(rate_rps: float) -> float:
            return 1.0 - float(self(QosRun(system, load.at(rate_rps), hopeless=True))["all"])

        return highest_rate(kept, load.rate_rps)


def highest_rate(kept: Callable[[float], float], start_rps: float) -> float:
    """The highest rate found, to `TOLERANCE`, that keeps 1 - `ALLOWED`. ValueError after `MAX_RUNS` rates."""
    points: list[ProbedRate] = []
    rate = start_rps
    while len(points) < MAX_RUNS:
        points.append(ProbedRate(rate, kept(rate)))
        low, high = bracket(points, 1.0 - ALLOWED)
        if low is None:
            rate = min(point.rate_rps for point in points) / STEP
        elif high is None:
            rate = low * STEP
        elif high / low <= 1.0 + TOLERANCE:
            return low
        else:
            rate = (low * high) ** 0.5
    raise ValueError(f"no rate near {start_rps:g}/s is known to keep {1.0 - ALLOWED:.0%} after {MAX_RUNS} runs")
