"""How well costs on a number of cards are told from those on others, and MaaSO's throughput decay (Eq. 1) beside the
step law where both predict the largest load of a curve from the smaller ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log2
from statistics import fmean
from typing import Any

import numpy as np

from experiments.pages.goal import Goal
from experiments.study import Finished, Options
from hmas.engine.fitting import COEFFICIENTS, Observation, fit_cost, non_negative
from hmas.mesh.calibrate.decay import BETAS
from hmas.mesh.profiling.card_scaling import best_scaling, left_out, mean_error
from hmas.mesh.profiling.fitted_types import fit_cell
from hmas.mesh.profiling.known_cells import CELLS, ProfiledCell
from hmas.mesh.profiling.silicon import MeasuredLoop, closed_loops, observations_by_gpus, sift

VLLM = ("llama31-70b-fp8-vllm-h200", "llama31-70b-fp8-vllm-h100", "qwen3-32b-bf16-vllm-h100")
TRTLLM = ("llama31-70b-fp8-trtllm-h200", "llama31-70b-fp8-trtllm-b200", "llama31-70b-fp4-trtllm-b200")
MOST_LTO = {**dict.fromkeys(VLLM, 0.045), **dict.fromkeys(TRTLLM, 0.035)}
LEAST_POINTS = 4  # of a curve: the decay has three parameters, and the last point is predicted
LoadCurve = list[tuple[float, float]]  # requests at a time, and the seconds per token of each


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """One cell. Errors are mean relative ones of TPOT: `own` of a fit to each number of cards, `plain` and `talking` on
    those left out of a fit without and with talk between cards, `ideal` of the nearest number's costs divided by the
    cards. `queued` tells the error with the loops that queued. Of curves over load, errors on their largest load,
    predicted from the smaller ones, and in-sample ones. `refused`: why there are no types, and none of the figures."""

    cell: str
    loops: int
    used: int
    queued: int
    outgrown: int
    repeated: int
    refused: str = ""
    own: Mapping[int, float]
    plain: Mapping[int, float]
    talking: Mapping[int, float]
    ideal: Mapping[int, float]
    with_queued: float
    curves: int
    decay_within: float | None
    decay_beyond: float | None
    step_within: float | None
    step_beyond: float | None

    @property
    def lto(self) -> float:
        """The mean error of the scaling that is kept."""
        return min(fmean(self.plain.values()), fmean(self.talking.values()))


def rows_of(options: Options, found: Finished) -> list[ScalingRow]:
    """Fits all known cells. Raises as `measured_loops` does."""
    loops = measured_loops(options)
    return [row_of(cell, loops[name]) for name, cell in CELLS.items()]


def measured_loops(options: Options) -> dict[str, list[MeasuredLoop]]:
    """Returns the measurements of all known cells. Raises ValueError if there is no folder of data, and OSError if it
    has no table."""
    if options.data is None:
        raise ValueError("this needs measurements: give --data FOLDER with perf/ in it")
    loops = closed_loops(options.data, [cell.key for cell in CELLS.values()])
    return {name: loops[cell.key] for name, cell in CELLS.items()}


def row_of(cell: ProfiledCell, loops: Sequence[MeasuredLoop]) -> ScalingRow:
    """Returns the figures of a cell."""
    kv_tokens = {gpus: cell.kv_tokens(gpus) for gpus in {loop.gpus for loop in loops}}
    sifted = sift(loops, kv_tokens)
    sizes = observations_by_gpus(sifted.loops)
    refused = ""
    try:
        fit_cell(cell, loops)
    except ValueError as error:
        refused = str(error)
    all_sizes = observations_by_gpus(sift(loops, kv_tokens, max_ttft_s=inf).loops)
    curves = curves_of(sifted.loops)
    predicted = [(*decay_errors(curve), *step_errors(curve)) for curve in curves.values()]
    means = [round(fmean(errors), 4) for errors in zip(*predicted, strict=True)] if predicted else [None] * 4
    return ScalingRow(
        cell=cell.name,
        loops=len(loops),
        used=len(sifted.loops),
        queued=sifted.queued,
        outgrown=sifted.outgrown,
        repeated=sifted.repeated,
        refused=refused,
        own={g: round(mean_error(fit_cost(o).cost, o), 4) for g, o in sizes.items() if len(o) >= COEFFICIENTS},
        plain=_rounded(left_out(sizes, talks=False)),
        talking=_rounded(left_out(sizes, talks=True)),
        ideal=_rounded(ideal(sizes)),
        with_queued=round(best_scaling(all_sizes).mean, 4),
        curves=len(curves),
        decay_within=means[0],
        decay_beyond=means[1],
        step_within=means[2],
        step_beyond=means[3],
    )


def _rounded(errors: Mapping[int, float]) -> dict[int, float]:
    return {gpus: round(error, 4) for gpus, error in errors.items()}


def ideal(sizes: Mapping[int, Sequence[Observation]]) -> dict[int, float]:
    """Returns the error on each number of cards of the costs on the nearest other one, divided by the cards."""
    fitted = {gpus: fit_cost(observed).cost for gpus, observed in sizes.items() if len(observed) >= COEFFICIENTS}
    result = {}
    for gpus, observed in sizes.items():
        others = [other for other in fitted if other != gpus]
        if others:
            near = min(others, key=lambda other: abs(log2(other / gpus)))
            result[gpus] = mean_error(fitted[near].times(near / gpus), observed)
    return result


def curves_of(loops: Sequence[MeasuredLoop]) -> dict[tuple[int, int, int], LoadCurve]:
    """Returns the curves over load with `LEAST_POINTS` or more, by number of cards, prompt and output."""
    found: dict[tuple[int, int, int], LoadCurve] = {}
    for loop in sorted(loops, key=lambda loop: loop.users):
        found.setdefault((loop.gpus, loop.prompt, loop.output), []).append((loop.users, loop.tpot_s))
    return {key: curve for key, curve in found.items() if len(curve) >= LEAST_POINTS}


def decay_errors(curve: LoadCurve) -> tuple[float, float]:
    """Returns the mean error of the decay over a curve, and that on its largest load if fitted to the others, both of
    the speed. No curve has a load of one request, so that T_1 is fitted, too."""
    return _errors(curve, [1.0 / seconds for _, seconds in curve], _fitted_decay)


def step_errors(curve: LoadCurve) -> tuple[float, float]:
    """Returns the same of c0 + c_d W, of the time."""
    return _errors(curve, [seconds for _, seconds in curve], _fitted_step)


def _errors(curve: LoadCurve, values: Sequence[float], fitted: Any) -> tuple[float, float]:
    loads, true = np.array([load for load, _ in curve]), np.array(values)
    within = np.abs(fitted(loads, true)(loads) / true - 1.0)
    beyond = abs(fitted(loads[:-1], true[:-1])(loads[-1]) / true[-1] - 1.0)
    return float(within.mean()), float(beyond)


def _fitted_decay(loads: Any, speeds: Any) -> Any:
    best, least = None, inf
    for beta in BETAS:
        logs = np.log1p(beta * (loads - 1))
        solution, _ = non_negative(np.stack([1.0 / speeds, -logs / speeds], axis=1), np.ones(len(loads)))
        residual = float(np.sum(((solution[0] - solution[1] * logs) / speeds - 1.0) ** 2))
        if residual < least:
            best, least = (solution, beta), residual
    assert best is not None
    (alone, lost), beta = best
    return lambda at: alone - lost * np.log1p(beta * (at - 1))


def _fitted_step(loads: Any, seconds: Any) -> Any:
    design = np.stack([1.0 / seconds, loads / seconds], axis=1)
    solution, _ = non_negative(design, np.ones(len(loads)))
    return lambda at: solution[0] + solution[1] * at


def goals_of(rows: Sequence[ScalingRow]) -> list[Goal]:
    named = {row.cell: row for row in rows}
    return [
        Goal(
            f"{cell}: error on a number of cards left out at most {100 * most:g} %",
            f"{100 * named[cell].lto:.1f} %",
            named[cell].lto <= most,
        )
        for cell, most in MOST_LTO.items()
        if cell in named
    ]
