"""What was measured, whether the goals hold, and the page about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import mean

from benchmarks.vllm import systems
from benchmarks.vllm.processors import Busy
from hmas.mesh.compare.commands import LIGHT, OVERLOAD
from hmas.mesh.compare.runs import Replay
from hmas.mesh.compare.table import comparison_rows
from hmas.mesh.compare.workload import SloFactors
from hmas_loadgen.search import GOODPUT_RATE, ProbedRate, RateSearch
from tests.engines.environment import VERSION

GOALS = {OVERLOAD: 1.5, LIGHT: 0.98}  # goodput rate over that of plain vLLM
MOST_RPS = 10.0
ADDED = (("p50", "ttft_p50_s"), ("p99", "ttft_p99_s"))


@dataclass(frozen=True, slots=True)
class Measured:
    replay: Replay
    busy: Busy


@dataclass(slots=True)
class VllmResults:
    """`loads`: runs by load (in lambda*) and system. `paces`: the engine's pace after each system, measured as
    `slo_factors` were before them all: the machine's own speed."""

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

    def by_load(self) -> Iterator[tuple[float, dict[str, list[Measured]]]]:
        yield from sorted(self.loads.items(), reverse=True)

    def title(self, load: float) -> str:
        return f"{load:g} of the capacity of plain vLLM: {load * self.rate_rps:.2f} req/s"

    def ratio(self, load: float, system: str) -> float:
        """Its goodput rate over plain vLLM's."""
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
        """Whether all runs are valid, and the goals of what was measured hold."""
        valid = not any(m.replay.reasons for of in self.loads.values() for ms in of.values() for m in ms)
        if ranking:
            return valid
        every = all(list(of) == list(systems.SYSTEMS) for of in self.loads.values())
        ours = [(load, name) for load, of in self.loads.items() for name in of if name != systems.PLAIN]
        met = all(self.ratio(load, name) >= GOALS.get(load, 0.0) for load, name in ours)
        return valid and every and met and 0.0 < self.rate_rps <= MOST_RPS

    def _added_s(self, load: float, system: str, quantile: str) -> float:
        return self._mean(load, system, quantile) - self._mean(load, systems.PLAIN, quantile)

    def _mean(self, load: float, system: str, name: str) -> float:
        return float(mean(getattr(m.replay.score, name) for m in self.loads[load][system]))


def page(results: VllmResults, *, ranking: bool) -> str:
    title = "Topologies on a real vLLM" if ranking else "The mesh in front of a real vLLM"
    arguments = "--page FILE" + (" --topologies ..." if ranking else "")
    lines = [
        f"# {title}",
        "",
        f'Written by `make bench-vllm ARGS="{arguments}"`. The same trace, the same SLOs, the same load generator,',
        "open loop; one system after the other, the engine core on a processor of its own.",
        "",
        f"- engine: vLLM {VERSION} on a CPU, random Qwen3 weights, `{' '.join(systems.FLAGS)}`",
        f"- trace: {results.workload}, {results.seconds:g} s a replay, seeds {', '.join(map(str, results.seeds))}",
        f"- SLOs: Table 6 and Eq. 14, TTFT times {results.factors.ttft:.3f} and TPOT times {results.factors.tpot:.3f}: "
        "this engine's prefill",
        "  of a prompt, and its longest step, over those of the engine of `make run-compare`; fixed before all else",
        f"- λ*, the highest rate at which plain vLLM keeps a goodput rate of {GOODPUT_RATE:g}: "
        f"**{results.rate_rps:.2f} req/s**{_search(results.search)}",
        f"- the machine's own speed (step and prefill after a system's runs over those before): {_paces(results)}",
        "",
    ]
    for load, systems_at in results.by_load():
        lines += [
            f"## {results.title(load)}",
            "",
            *_table(systems_at),
            "",
            *(f"- {line}" for line in results.verdicts(load, ranking=ranking)),
            "",
        ]
    return "\n".join(lines)


def _search(search: RateSearch | None) -> str:
    if search is None:
        return " (given)"
    tried = ", ".join(f"{p.rate_rps:.2f}: {p.goodput_rate:.1%}" for p in sorted(search.points, key=_rate))
    return f" (tried, req/s and goodput rate: {tried})"


def _rate(point: ProbedRate) -> float:
    return point.rate_rps


def _paces(results: VllmResults) -> str:
    before = results.factors
    return ", ".join(
        f"{system} {pace.tpot / before.tpot:.2f} and {pace.ttft / before.ttft:.2f}"
        for system, pace in results.paces.items()
    )


def _table(systems_at: Mapping[str, list[Measured]]) -> list[str]:
    rows = comparison_rows({name: [m.replay for m in measured] for name, measured in systems_at.items()})
    busy = {"engine core busy": "core", "other processors busy": "others"}
    for label, attribute in busy.items():
        cells = [f"{mean(getattr(m.busy, attribute) for m in of):.0%}" for of in systems_at.values()]
        rows.append((label, *cells))
    return [f"| | {' | '.join(systems_at)} |", "|---|" + "---|" * len(systems_at), *(_row(row) for row in rows)]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
