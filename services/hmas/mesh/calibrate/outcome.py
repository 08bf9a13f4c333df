"""The outcome of a calibration: the fitted profile as YAML, as a table and as plots."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from hmas.engine.core.profile import EngineLimits, EngineProfile, parse_profiles
from hmas.engine.fitting import Fit, fit_cost
from hmas.mesh.calibrate.decay import ThroughputDecay, fit_decay
from hmas.mesh.calibrate.measurement import Measurement, observations, overhead_s

NAMES = {
    "c0_s": "an empty step",
    "c_p_s": "a prefill token",
    "c_d_s": "a decoding sequence",
    "c_k_s": "a token of context",
    "c_pp_s": "a pair of prefill tokens",
}
PLOT_SIZE = (74, 16)  # columns and lines
POOR_FIT = 0.1  # mean error of a fit from which on it is remarked


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted profile with the measurements behind it; `decay` is None if there were too few for its fit.

    `overhead_s` is a request's time outside the engine's steps, subtracted from each TTFT before the fit.
    """

    profile: EngineProfile
    fit: Fit
    decay: ThroughputDecay | None
    overhead_s: float
    measurements: tuple[Measurement, ...]

    def yaml(self) -> str:
        """Returns a profile file that `parse_profiles` reads, with confidence intervals and the throughput decay."""
        body: dict[str, Any] = {
            "source": self.profile.source,
            "model": self.profile.model,
            "hardware": self.profile.hardware,
            "cost": asdict(self.fit.cost),
            "limits": asdict(self.profile.limits),
            "fit": asdict(self.fit.error),
            "half_width_95": dict(zip(NAMES, map(_short, self.fit.half_width_95), strict=True)),
            "request_overhead_s": _short(self.overhead_s),
        }
        if self.decay is not None:
            body["throughput_decay"] = {
                name: list(map(_short, value)) if isinstance(value, tuple) else _short(value)
                for name, value in asdict(self.decay).items()
            }
        text = yaml.safe_dump({self.profile.name: body}, sort_keys=False, width=120)
        parse_profiles(text)  # proves that what is written can be read
        return text


def calibrated(name: str, source: str, measurements: Sequence[Measurement], limits: EngineLimits) -> Calibration:
    """Fits a profile to the measurements. Raises ValueError if they do not allow a fit."""
    extra_s = overhead_s(measurements)
    fit = fit_cost(observations(measurements, extra_s, limits.max_num_batched_tokens))
    decodes = [m for m in measurements if m.kind == "decode" and m.seconds]
    shortest = min((m.prompt_tokens for m in decodes), default=0.0)
    speeds = [(m.batch, 1 / m.seconds) for m in decodes if m.seconds and m.prompt_tokens <= 1.5 * shortest]
    decay = fit_decay(speeds, limits.max_num_seqs)
    profile = EngineProfile(name, fit.cost, limits, source, fit.error, extra_s)
    return Calibration(profile, fit, decay, extra_s, tuple(measurements))


def table(calibration: Calibration) -> Table:
    """Returns a table of the fitted coefficients with their confidence, the fit's errors, and the engine's limits."""
    result = Table(title=f"profile {calibration.profile.name}", title_justify="left")
    for column in ("", "fitted", "± (95 %)", "unit"):
        result.add_column(column, justify="left" if column in ("", "unit") else "right")
    cost = asdict(calibration.fit.cost)
    for (name, text), width in zip(NAMES.items(), calibration.fit.half_width_95, strict=True):
        result.add_row(f"{text} ({name[:-2]})", f"{cost[name] * 1e6:.4g}", f"{width * 1e6:.2g}", "µs")
    result.add_row("a request, outside the steps", f"{calibration.overhead_s * 1e3:.3g}", "", "ms")
    error, decay = calibration.fit.error, calibration.decay
    for kind, mean, p90 in (
        ("prefill", error.prefill_mean, error.prefill_p90),
        ("decode", error.decode_mean, error.decode_p90),
    ):
        if mean is not None and p90 is not None:
            result.add_row(f"error of {kind}, mean / p90", f"{mean:.1%}", f"{p90:.1%}", "of the time")
    if decay is not None:
        result.add_row("one request alone", f"{decay.tokens_per_s:.4g}", "", "tokens/s")
        result.add_row("throughput decay, alpha", f"{decay.alpha:.3g}", f"{decay.half_width_95[0]:.2g}", "")
        result.add_row("throughput decay, beta", f"{decay.beta:.3g}", f"{decay.half_width_95[1]:.2g}", "")
        result.add_row("error of the decay, mean", f"{decay.error_mean:.1%}", "", "of the speed")
    limits = calibration.profile.limits
    result.add_row("KV cache", str(limits.num_gpu_blocks * limits.block_size), "", "tokens")
    result.add_row("sequences at once", str(limits.max_num_seqs), "", "")
    return result


def poor_fits(calibration: Calibration) -> list[str]:
    """Returns a remark on each kind of step whose fitted times are off by `POOR_FIT` or more on average."""
    error = calibration.fit.error
    kinds = {"prefill": error.prefill_mean, "decode": error.decode_mean}
    return [
        f"the fitted times of {kind} are off by {mean:.0%} on average: the engine served others meanwhile, or its "
        "machine or this one was busy. Measure again with --fresh on a quiet machine before you trust a simulation"
        for kind, mean in kinds.items()
        if mean is not None and mean >= POOR_FIT
    ]


def plots(calibration: Calibration) -> Group:
    """Returns text plots of measured points and fit: TTFT by prompt length, and step duration by batch size."""
    cost, limits = calibration.fit.cost, calibration.profile.limits
    prefills = [m for m in calibration.measurements if m.kind == "prefill" and m.seconds]
    decodes = [m for m in calibration.measurements if m.kind == "decode" and m.seconds]
    ttft = [
        calibration.overhead_s
        + -(-m.prompt_tokens // limits.max_num_batched_tokens) * cost.c0_s
        + cost.c_p_s * m.prompt_tokens
        + cost.c_pp_s * m.prompt_tokens**2 / 2
        for m in prefills
    ]
    step = [cost.step_s(0, m.batch, int(m.context_tokens), 0.0) for m in decodes]
    return Group(
        _plot("TTFT", "prompt tokens", [m.prompt_tokens for m in prefills], prefills, ttft),
        _plot("step", "decoding sequences", [float(m.batch) for m in decodes], decodes, step),
    )


def _plot(y: str, x: str, xs: Sequence[float], measurements: Sequence[Measurement], fitted_s: Sequence[float]) -> Panel:
    """Plots times (s) over `xs` as text, both axes from 0 to the largest value.

    A mark x is a measured point, o a fitted one; where both fall together only the x shows.
    """
    measured_s = [m.seconds or 0.0 for m in measurements]
    columns, lines = PLOT_SIZE
    right, top_s = max(xs, default=0.0) or 1.0, max((*measured_s, *fitted_s), default=0.0) or 1.0
    grid = [[" "] * columns for _ in range(lines)]
    for mark, values in (("o", fitted_s), ("x", measured_s)):
        for at, value_s in zip(xs, values, strict=True):
            grid[round((1 - value_s / top_s) * (lines - 1))][round(at / right * (columns - 1))] = mark
    return Panel(
        Text("\n".join(map("".join, grid)), no_wrap=True),
        title=f"{y}, 0 to {1000 * top_s:.4g} ms: measured x, fitted o",
        subtitle=f"0 to {right:g} {x}",
        expand=False,
    )


def _short(value: float) -> float:
    return float(f"{value:.4g}")
