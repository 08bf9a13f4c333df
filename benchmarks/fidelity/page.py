"""Compares the figures of the real and the emulated engine, and makes the page about them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.fidelity.replays import COMPARED, Figures
from benchmarks.fidelity.scenario import LOADS, ReplayScenario
from benchmarks.fidelity.speed import AT_ONCE, OUTPUT, PROMPT, TRIES, EmulatedRun
from experiments.pages.template import render
from hmas.engine.core.profile import EngineProfile

BOUNDS = dict(zip(COMPARED, (0.05, 0.10, 0.20, 0.10, 0.20), strict=True))
LABELS = {
    "tokens_per_s": ("throughput", "tokens/s", 1.0),
    "ttft_p50_s": ("TTFT p50", "ms", 1000.0),
    "ttft_p95_s": ("TTFT p95", "ms", 1000.0),
    "tpot_p50_s": ("TPOT p50", "ms", 1000.0),
    "tpot_p95_s": ("TPOT p95", "ms", 1000.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityVerdict:
    """The comparison of one figure at one load: medians over the real runs and over their emulations, the relative
    errors run by run, and the error of the emulated engine's server, which was not corrected for the machine's
    speed."""

    name: str
    real: float
    emulated: float
    errors: tuple[float, ...]
    served_error: float

    @property
    def error(self) -> float:
        return median(self.errors)

    @property
    def bound(self) -> float:
        return BOUNDS[self.name]

    @property
    def holds(self) -> bool:
        return abs(self.error) <= self.bound

    @property
    def served_holds(self) -> bool:
        return abs(self.served_error) <= self.bound


def verdicts(real: Sequence[Figures], served: Figures, pairs: Sequence[EmulatedRun]) -> list[FidelityVerdict]:
    """Returns one verdict a figure. `pairs` are the emulations of the `real` runs, `served` is the emulated server's
    replay."""
    found = []
    for name in COMPARED:
        middle = median(getattr(run, name) for run in real)
        found.append(
            FidelityVerdict(
                name=name,
                real=middle,
                emulated=median(pair.emulated[name] for pair in pairs),
                errors=tuple(pair.errors[name] for pair in pairs),
                served_error=getattr(served, name) / middle - 1.0,
            )
        )
    return found


def page(
    scenario: ReplayScenario, profile: EngineProfile, version: str, trace: str, real: Mapping[str, Sequence[Figures]],
    served: Mapping[str, Figures], pairs: Mapping[str, Sequence[EmulatedRun]],
) -> str:  # fmt: skip
    found = {load.name: verdicts(real[load.name], served[load.name], pairs[load.name]) for load in LOADS}
    return render(
        Path(__file__).with_name("page.md.j2"),
        scenario=scenario,
        version=version,
        trace=trace,
        real=real,
        served=served,
        found=found,
        every=[v for vs in found.values() for v in vs],
        runs=len(next(iter(real.values()))),
        factors={load: [pair.factor for pair in of] for load, of in pairs.items()},
        cost=profile.cost,
        fit=profile.fit,
        LABELS=LABELS,
        LOADS=LOADS,
        AT_ONCE=AT_ONCE,
        PROMPT=PROMPT,
        TRIES=TRIES,
        OUTPUT=OUTPUT,
    )
