"""Holds the results of the vLLM benchmark, judges whether the goals hold, and makes its page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from benchmarks.vllm import systems
from benchmarks.vllm.processors import Busy
from experiments.pages.template import render
from hmas.mesh.compare.commands import LIGHT, OVERLOAD
from hmas.mesh.compare.runs import Replay
from hmas.mesh.compare.table import comparison_rows
from hmas.mesh.compare.workload import SloFactors
from hmas_loadgen.search import GOODPUT_RATE, RateSearch
from tests.engines.environment import VERSION

GOALS = {OVERLOAD: 1.5, LIGHT: 0.98}  # by load: goal for the goodput rate over that of plain vLLM
MOST_BUSY = 0.9  # of the other processors: above it the engine is not the bottleneck for certain
STEADY = 1.1  # by how much the machine's speed may change from one system to another before the page warns
ADDED = (("p50", "ttft_p50_s"), ("p99", "ttft_p99_s"))


@dataclass(frozen=True, slots=True)
class Measured:
    replay: Replay
    busy: Busy


@dataclass(slots=True, kw_only=True)
class VllmResults:
    """The results. `loads` holds the runs by load (in λ*) and system. `rate_rps` is λ* of plain vLLM. `slo_factors` are
    those of the engine's pace before all runs, and `paces` those measured after each system: they differ if the
    machine's speed changed."""

    workload: str
    seconds: float
    seeds: tuple[int, ...]
    slo_factors: SloFactors | None
    rate_rps: float
    loads: dict[float, dict[str, list[Measured]]]
    search: RateSearch | None = None
    paces: dict[str, SloFactors] = field(default_factory=dict)

    @property
    def factors(self) -> SloFactors:
        return self.slo_factors or SloFactors()

    @property
    def drift(self) -> float:
        """The engine's slowest prefill over its fastest, each measured after a system's runs; 1 without a measure."""
        prefills = [pace.ttft for pace in self.paces.values()]
        return max(prefills) / min(prefills) if prefills else 1.0

    def by_load(self) -> Iterator[tuple[float, dict[str, list[Measured]]]]:
        yield from sorted(self.loads.items(), reverse=True)

    def title(self, load: float) -> str:
        return f"{load:g} of the capacity of plain vLLM: {load * self.rate_rps:.2f} req/s"

    def ratio(self, load: float, system: str) -> float:
        """Returns the goodput rate of a system over that of plain vLLM at the same load."""
        return self._mean(load, system, "goodput_rate") / max(self._mean(load, systems.PLAIN, "goodput_rate"), 1e-9)

    def verdicts(self, load: float, *, ranking: bool) -> list[str]:
        if ranking:
            ours = [name for name in self.loads[load] if name != systems.PLAIN]
            order = sorted(ours, key=lambda name: self.ratio(load, name), reverse=True)
            return ["by goodput rate: " + ", ".join(name.removeprefix("mesh: ") for name in order)]
        lines = []
        for system in list(self.loads[load])[1:]:
            added = ", ".join(f"{name} {1e3 * self._added_s(load, system, q):+.1f} ms" for name, q in ADDED)
            ratio, goal = self.ratio(load, system), GOALS.get(load)
            aim = f" (goal at least {goal:g}: {'holds' if ratio >= goal else 'does not hold'})" if goal else ""
            lines.append(f"{system} against plain vLLM: goodput rate × {ratio:.2f}{aim}; TTFT {added}")
        return lines

    def good(self, *, ranking: bool) -> bool:
        """Tells whether all runs are valid, with the engine as their bottleneck, and, unless topologies were compared
        (`ranking`), whether all systems were measured and reached the goals."""
        runs = [m for of in self.loads.values() for measured in of.values() for m in measured]
        valid = all(not m.replay.reasons and m.busy.others <= MOST_BUSY for m in runs)
        if ranking:
            return valid
        every = all(list(of) == list(systems.SYSTEMS) for of in self.loads.values())
        ours = [(load, name) for load, of in self.loads.items() for name in of if name != systems.PLAIN]
        met = all(self.ratio(load, name) >= GOALS.get(load, 0.0) for load, name in ours)
        return valid and every and met and self.rate_rps > 0.0

    def _added_s(self, load: float, system: str, quantile: str) -> float:
        return self._mean(load, system, quantile) - self._mean(load, systems.PLAIN, quantile)

    def _mean(self, load: float, system: str, name: str) -> float:
        return float(mean(getattr(m.replay.score, name) for m in self.loads[load][system]))


def page(results: VllmResults, *, ranking: bool) -> str:
    return render(
        Path(__file__).with_name("page.md.j2"),
        results=results,
        ranking=ranking,
        tried=results.search and sorted(results.search.points, key=lambda point: point.rate_rps),
        rows_of=_rows,
        FLAGS=systems.FLAGS,
        GOODPUT_RATE=GOODPUT_RATE,
        STEADY=STEADY,
        VERSION=VERSION,
    )


def _rows(systems_at: Mapping[str, list[Measured]]) -> list[tuple[str, ...]]:
    rows = comparison_rows({name: [m.replay for m in measured] for name, measured in systems_at.items()})
    busy = {"engine core busy": "core", "other processors busy": "others"}
    for label, attribute in busy.items():
        cells = [f"{mean(getattr(m.busy, attribute) for m in of):.0%}" for of in systems_at.values()]
        rows.append((label, *cells))
    return rows
