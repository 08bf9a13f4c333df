"""Compares the figures of the real and the emulated engine, and makes the page about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.fidelity.replays import COMPARED, Figures
from benchmarks.fidelity.scenario import LOADS, ReplayScenario
from benchmarks.fidelity.speed import Remainder
from experiments.report.template import render
from hmas.engine.core.profile import EngineProfile

BOUNDS = dict(zip(COMPARED, (0.05, 0.10, 0.20, 0.10, 0.20), strict=True))
RESTLESS = 0.25  # spread of the real runs beyond which the page warns that the machine was not steady
SPREAD_FACTOR = 1.5  # times the spread of the real runs is the bound if that exceeds `BOUNDS`
LABELS = {
    "tokens_per_s": ("throughput", "tokens/s", 1.0),
    "ttft_p50_s": ("TTFT p50", "ms", 1000.0),
    "ttft_p95_s": ("TTFT p95", "ms", 1000.0),
    "tpot_p50_s": ("TPOT p50", "ms", 1000.0),
    "tpot_p95_s": ("TPOT p95", "ms", 1000.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityVerdict:
    """The comparison of one figure at one load. `real` is the median of the runs on the real engine, `spread` their
    (largest - smallest) / median. `error` and `bound` are relative to `real`."""

    load: str
    name: str
    real: float
    emulated: float
    spread: float

    @property
    def error(self) -> float:
        return self.emulated / self.real - 1.0

    @property
    def bound(self) -> float:
        return max(BOUNDS[self.name], SPREAD_FACTOR * self.spread)

    @property
    def holds(self) -> bool:
        return abs(self.error) <= self.bound

    @property
    def holds_strictly(self) -> bool:
        """Whether the error is within the fixed bound of `BOUNDS`, whatever the spread."""
        return abs(self.error) <= BOUNDS[self.name]


def verdicts(load: str, real: Sequence[Figures], emulated: Figures) -> list[FidelityVerdict]:
    result = []
    for name in COMPARED:
        values = [getattr(run, name) for run in real]
        middle = median(values)
        spread = (max(values) - min(values)) / middle
        result.append(
            FidelityVerdict(load=load, name=name, real=middle, emulated=getattr(emulated, name), spread=spread)
        )
    return result


def page(
    scenario: ReplayScenario, profile: EngineProfile, version: str, trace: str, real: Mapping[str, Sequence[Figures]],
    emulated: Mapping[str, Figures], remainders: Mapping[str, Sequence[Remainder]],
) -> str:  # fmt: skip
    found = {load.name: verdicts(load.name, real[load.name], emulated[load.name]) for load in LOADS}
    every = [v for vs in found.values() for v in vs]
    remaining = [name for name in COMPARED if name != "tpot_p50_s"]
    return render(
        Path(__file__).with_name("page.md.j2"),
        scenario=scenario,
        version=version,
        trace=trace,
        real=real,
        emulated=emulated,
        found=found,
        every=every,
        runs=len(next(iter(real.values()))),
        widest=max(v.spread for v in every),
        remaining=[LABELS[name][0] for name in remaining],
        remainders=[_remainder(load, of, remaining) for load, of in remainders.items()],
        cost=profile.cost,
        fit=profile.fit,
        LABELS=LABELS,
        LOADS=LOADS,
        RESTLESS=RESTLESS,
        SPREAD_FACTOR=SPREAD_FACTOR,
    )


def _remainder(load: str, found: Sequence[Remainder], names: Sequence[str]) -> list[str]:
    factors = [r.factor for r in found]
    errors = (f"{median(r.errors[name] for r in found):+.1%}" for name in names)
    return [load, f"{min(factors):.2f} to {max(factors):.2f}", *errors]
