"""The comparison and its page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.fidelity.replays import COMPARED, Figures
from benchmarks.fidelity.scenario import LOADS, ReplayScenario
from benchmarks.fidelity.speed import Remainder
from hmas.engine.core.profile import EngineProfile

BOUNDS = dict(zip(COMPARED, (0.05, 0.10, 0.20, 0.10, 0.20), strict=True))
RESTLESS = 0.25  # spread beyond which the page warns of the machine
SPREAD_FACTOR = 1.5  # where the real runs differ by more among themselves
LABELS = {
    "tokens_per_s": ("throughput", "tokens/s", 1.0),
    "ttft_p50_s": ("TTFT p50", "ms", 1000.0),
    "ttft_p95_s": ("TTFT p95", "ms", 1000.0),
    "tpot_p50_s": ("TPOT p50", "ms", 1000.0),
    "tpot_p95_s": ("TPOT p95", "ms", 1000.0),
}


@dataclass(frozen=True, slots=True)
class FidelityVerdict:
    """One figure at one load. `real`: median of the runs. `spread`: (largest - smallest) / median. Errors are shares
    of the real figure."""

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
        """Without regard to the spread."""
        return abs(self.error) <= BOUNDS[self.name]


def verdicts(load: str, real: Sequence[Figures], emulated: Figures) -> list[FidelityVerdict]:
    result = []
    for name in COMPARED:
        values = [getattr(run, name) for run in real]
        middle = median(values)
        spread = (max(values) - min(values)) / middle
        result.append(FidelityVerdict(load, name, middle, getattr(emulated, name), spread))
    return result


def page(
    scenario: ReplayScenario, profile: EngineProfile, version: str, trace: str, real: Mapping[str, Sequence[Figures]],
    emulated: Mapping[str, Figures], remainders: Mapping[str, Sequence[Remainder]],
) -> str:  # fmt: skip
    found = {load.name: verdicts(load.name, real[load.name], emulated[load.name]) for load in LOADS}
    every = [v for vs in found.values() for v in vs]
    good, strict = sum(v.holds for v in every), sum(v.holds_strictly for v in every)
    runs = len(next(iter(real.values())))
    lines = [
        "# The emulated engine against a real one",
        "",
        "Written by `make fidelity`. `hmas calibrate` measured a real vLLM on a CPU and fitted the emulated engine's",
        "cost model to it. Then slices of a trace that the calibration had not seen were replayed, open loop, against",
        f"the real engine ({runs} runs each) and once against the emulated one, by the same load generator.",
        "",
        f"- engine: vLLM {version}, random Qwen3 weights ({scenario.layers} layers of {scenario.hidden}), "
        f"`{' '.join(scenario.flags())}`",
        f"- trace: {trace}, {scenario.seconds:g} s a replay",
        "- error: emulated ÷ median of the real runs − 1; spread: (largest − smallest) ÷ median of the real runs;",
        f"  bound: 5 % of throughput, 10 % of medians, 20 % of p95, or {SPREAD_FACTOR:g} spreads if that is more",
        "",
        f"**{good} of {len(every)} figures are within their bound, {strict} also where the spread is left out of it.**",
        "",
    ]
    widest = max(v.spread for v in every)
    if widest > RESTLESS:
        lines += [
            f"The real runs differ by up to {widest:.0%} among themselves: the machine's own speed changed during the",
            "study (processors shared with others, frequency), so that the wide bounds say little about the emulator.",
            "On a machine of its own the study is worth repeating.",
            "",
        ]
    for load in LOADS:
        lines += _table(load.name, load.share, found[load.name], real[load.name], emulated[load.name])
    lines += _without_speed(remainders)
    lines += ["## The fitted profile", "", *_profile(profile), ""]
    return "\n".join(lines)


def _table(
    name: str, share: float, found: Sequence[FidelityVerdict], real: Sequence[Figures], emulated: Figures
) -> list[str]:  # fmt: skip
    preempted = [run.preemptions for run in real]
    lines = [
        f"## {name[0].upper()}{name[1:]}: {share:g} of the rate that keeps the engine full",
        "",
        f"{real[0].requests} requests; preemptions: {min(preempted)} to {max(preempted)} real, "
        f"{emulated.preemptions} emulated; completed: {min(r.completed for r in real)} real, "
        f"{emulated.completed} emulated.",
        "",
        "| figure | real | emulated | error | spread of the real runs | bound | |",
        "|---|---|---|---|---|---|---|",
    ]
    for v in found:
        label, unit, factor = LABELS[v.name]
        lines.append(
            f"| {label} | {v.real * factor:.4g} {unit} | {v.emulated * factor:.4g} {unit} | {v.error:+.1%} | "
            f"{v.spread:.1%} | {v.bound:.1%} | {'holds' if v.holds else '**beyond**'} |"
        )
    return [*lines, ""]


def _without_speed(remainders: Mapping[str, Sequence[Remainder]]) -> list[str]:
    names = [name for name in COMPARED if name != "tpot_p50_s"]
    lines = [
        "## What remains without the machine's speed",
        "",
        "A diagnosis, not the verdict: each real run is emulated once more with all costs multiplied by one number,",
        "such that the median TPOT comes out. The number is the machine's time per work in that run, relative to the",
        "calibrations'; what is left of the other figures' errors (median over the runs) is the model's.",
        "",
        f"| load | time per work | {' | '.join(LABELS[name][0] for name in names)} |",
        f"|---|---|{'---|' * len(names)}",
    ]
    for load, found in remainders.items():
        factors = [r.factor for r in found]
        errors = " | ".join(f"{median(r.errors[name] for r in found):+.1%}" for name in names)
        lines.append(f"| {load} | {min(factors):.2f} to {max(factors):.2f} | {errors} |")
    return [*lines, ""]


def _profile(profile: EngineProfile) -> list[str]:
    cost, fit = profile.cost, profile.fit
    lines = [
        f"A step takes {cost.c0_s * 1e6:.4g} µs, and {cost.c_p_s * 1e6:.4g} µs for each prompt token in it, "
        f"{cost.c_d_s * 1e6:.4g} µs for each decoding",
        f"sequence, {cost.c_k_s * 1e9:.4g} ns for each token of their contexts, {cost.c_pp_s * 1e9:.4g} ns for each "
        "pair of prompt tokens.",
    ]
    if fit is not None and fit.prefill_mean is not None and fit.decode_mean is not None:
        lines.append(
            f"Mean error of the fit over its {fit.points} points: prefill {fit.prefill_mean:.1%}, "
            f"decode {fit.decode_mean:.1%}."
        )
    return lines
