"""Makes and stores the runs of Niyama's evaluation, and searches the highest rate with few enough missed deadlines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.niyama.measure import ALLOWED, QosRun, measure
from experiments.niyama.workload import QosLoad
from hmas_lab.sim.cells import CellStore
from hmas_loadgen.search import ProbedRate, bracket

TOLERANCE = 0.02  # relative accuracy of the rate found
STEP = 1.15
MAX_RUNS = 16


class NiyamaRuns:
    """Returns the results of a run from the store, or makes the run and stores them. `seconds` adds up the CPU time of
    all runs returned."""

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
        """Returns the highest rate, requests per second, at which at most `ALLOWED` of the requests miss a deadline.
        The search starts at the rate of `load`."""

        def kept(rate_rps: float) -> float:
            return 1.0 - float(self(QosRun(system, load.at(rate_rps), hopeless=True))["all"])

        return highest_rate(kept, load.rate_rps)


def highest_rate(kept: Callable[[float], float], start_rps: float) -> float:
    """Searches the highest rate at which `kept`, the share of requests within their deadlines, is at least 1 -
    `ALLOWED`, to a relative accuracy of `TOLERANCE`. Raises ValueError if that takes more than `MAX_RUNS` rates."""
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
    raise ValueError(
        f"the highest rate that keeps {1.0 - ALLOWED:.0%} of the deadlines was not found in {MAX_RUNS} runs from "
        f"{start_rps:g} requests/s on: start nearer to it"
    )
