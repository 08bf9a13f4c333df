"""Measures the quality of the cost models: R2 on random rows, on configurations and on a model that training did not
see, and how fast the online correction makes up for hardware that training did not see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from catboost import CatBoostRegressor
from numpy.typing import NDArray

from hmas.contracts.request import Cost
from hmas.prediction.agent.measured_worker import MeasuredWorker
from hmas.prediction.models.catalogue import NAMES
from hmas.prediction.models.catboost_model import ARTEFACTS, LEAST_PREFILL_S, LEAST_TPOT_S, CatBoostCostModel
from hmas.prediction.training.measurements import Measurements
from hmas.prediction.training.train import (
    LATENCY_FILE,
    PREFILL,
    THROUGHPUT_FILE,
    TPOT,
    ForestRecipe,
    fit_cost,
    latency_per_token,
    throughput,
)

Floats = NDArray[np.float64]
REFIT_ROWS = 150_000
FOLDS = 5
CURVE_POINTS = (0, 10, 25, 50, 100, 200, 400, 800)
WINDOW = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """The R2 of the predicted times on `rows` rows: of the prefill, of the time from first to last token (`decode`),
    and of the time per token, where every row (`tpot`) or every token (`tpot_weighted`) counts alike. `upper_prefill`
    and `upper_tpot` are the shares of rows within the predicted 90 % quantile, NaN if they were not computed."""

    rows: int
    prefill: float
    decode: float
    tpot: float
    tpot_weighted: float
    upper_prefill: float = float("nan")
    upper_tpot: float = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """How the online correction learns hardware that training did not see: the median |log(predicted / observed)| of
    prefill time and TPOT after each number of settled `requests`, and the same without correction."""

    hardware: str
    requests: tuple[int, ...]
    prefill: tuple[float, ...]
    tpot: tuple[float, ...]
    uncorrected_prefill: float
    uncorrected_tpot: float


def evaluate(model: CatBoostCostModel, rows: Measurements) -> CostFigures:
    """Returns the figures of a trained model on the rows, with the coverage of its 90 % quantiles."""
    upper = model.predict_upper_rows(rows.inputs)
    known = np.isfinite(rows.tpot_s)
    figures = cost_figures(model.predict_rows(rows.inputs), rows)
    return CostFigures(
        rows=figures.rows,
        prefill=figures.prefill,
        decode=figures.decode,
        tpot=figures.tpot,
        tpot_weighted=figures.tpot_weighted,
        upper_prefill=float((rows.prefill_s <= upper[:, 0]).mean()),
        upper_tpot=float((rows.tpot_s[known] <= upper[known, 1]).mean()),
    )


def cost_figures(predicted: Floats, rows: Measurements) -> CostFigures:
    """Returns the figures of predictions. `predicted` [n, 2] holds the prefill time and the time per token of each row,
    in s."""
    known = np.isfinite(rows.tpot_s)
    gaps = np.maximum(0.0, rows.output_tokens - 1)[known]
    tpot, truth = predicted[known, 1], rows.tpot_s[known]
    return CostFigures(
        rows=len(rows.prefill_s),
        prefill=r2(rows.prefill_s, predicted[:, 0]),
        decode=r2(truth * gaps, tpot * gaps),
        tpot=r2(truth, tpot),
        tpot_weighted=r2(truth, tpot, gaps),
    )


def per_request(rows: Measurements, folder: Path = ARTEFACTS) -> dict[str, float]:
    """Returns the R2 of the models of a request's throughput (tokens/s) and of its mean latency per token. Raises
    FileNotFoundError if `folder` lacks these models, as the folder of an installed package does."""
    targets = {THROUGHPUT_FILE: throughput(rows), LATENCY_FILE: latency_per_token(rows)}
    for name in targets:
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder / name} does not exist: run this in a clone of the repository, or run `hmas train prediction`"
            )
    return {
        name.removesuffix(".cbm"): r2(target, CatBoostRegressor().load_model(str(folder / name)).predict(rows.inputs))
        for name, target in targets.items()
    }


def unseen_configurations(rows: Measurements, recipe: ForestRecipe, threads: int = 1) -> CostFigures:
    """Returns the figures over all rows, where each (model, GPU, count) configuration is predicted by a fit that saw
    none of its rows: the configurations are split into folds, and the predictions of all folds are pooled."""
    own = rows.configuration.astype(str)
    names = np.random.default_rng(recipe.seed).permutation(np.unique(own))
    predicted = np.empty((len(own), 2))
    for number in range(FOLDS):
        out = np.isin(own, names[number::FOLDS])
        predicted[out] = _predict(_fit_without(rows, out, recipe, threads), rows.rows(out))
    return cost_figures(predicted, rows)


def unseen_models(
    rows: Measurements, recipe: ForestRecipe, report: Callable[[str], None], threads: int = 1
) -> dict[str, CostFigures]:
    """Returns, for each language model, the figures on its rows of a fit to the rows of all others."""
    figures = {}
    for model in sorted(set(rows.model)):
        figures[model] = _refitted(rows, rows.model == model, recipe, threads)
        report(f"without {model}: decode R2 {figures[model].decode:.3f}")
    return figures


def _refitted(rows: Measurements, out: NDArray[np.bool_], recipe: ForestRecipe, threads: int) -> CostFigures:
    held = rows.rows(out)
    return cost_figures(_predict(_fit_without(rows, out, recipe, threads), held), held)


def _fit_without(
    rows: Measurements, out: NDArray[np.bool_], recipe: ForestRecipe, threads: int
) -> dict[str, CatBoostRegressor]:
    seen = np.random.default_rng(recipe.seed).permutation(np.flatnonzero(~out))[:REFIT_ROWS]
    return fit_cost([rows.rows(seen)], recipe, threads)


def _predict(models: dict[str, CatBoostRegressor], rows: Measurements) -> Floats:
    values = np.stack([models[name].predict(rows.inputs) for name in (PREFILL, TPOT)], axis=1)
    bounded: Floats = np.maximum(values, (LEAST_PREFILL_S, LEAST_TPOT_S))
    return bounded


def learning_curves(rows: Measurements, hardware: Sequence[str], recipe: ForestRecipe, threads: int = 1) -> list[Curve]:
    """Returns a curve for each accelerator in `hardware`, which is left out of the fit. Every configuration of it is a
    worker whose requests settle one by one, and each is predicted from those before it; errors are medians over
    configurations and a window of requests."""
    return [_learning_curve(rows, name, recipe, threads) for name in hardware]


def _learning_curve(rows: Measurements, hardware: str, recipe: ForestRecipe, threads: int) -> Curve:
    names = rows.configuration.astype(str)
    out = np.char.find(names, f" on {hardware}x") >= 0
    models = _fit_without(rows, out, recipe, threads)
    rng = np.random.default_rng(recipe.seed)
    least = max(CURVE_POINTS) + WINDOW
    corrected, plain = [], []
    for configuration in np.unique(names[out]):
        own = rng.permutation(np.flatnonzero((names == configuration) & np.isfinite(rows.tpot_s)))
        if len(own) < least:
            continue
        some = rows.rows(own[:least])
        modelled = _predict(models, some)
        measured = np.stack([some.prefill_s, some.tpot_s], axis=1)
        corrected.append(_log_errors(measured, _in_place(some, modelled, measured)))
        plain.append(_log_errors(measured, modelled))
    prefill, tpot = np.moveaxis(np.array(corrected), 2, 0)
    uncorrected_prefill, uncorrected_tpot = np.median(np.array(plain), axis=(0, 1))
    return Curve(
        hardware=hardware,
        requests=CURVE_POINTS,
        prefill=_points(prefill),
        tpot=_points(tpot),
        uncorrected_prefill=float(uncorrected_prefill),
        uncorrected_tpot=float(uncorrected_tpot),
    )


def _in_place(rows: Measurements, modelled: Floats, measured: Floats) -> Floats:
    """Returns the corrected prediction for each row of one worker, once the rows before it have settled. All arrays are
    [n, 2]: prefill time and TPOT in s."""
    worker, said = MeasuredWorker(), np.empty_like(modelled)
    states = rows.inputs[:, [NAMES.index("prompt_tokens"), NAMES.index("running")]].astype(int)
    for place, (prompt_tokens, running) in enumerate(states.tolist()):
        model = Cost(*modelled[place].tolist())
        cost = worker.cost(prompt_tokens, running, model)
        said[place] = cost.ttft_s, cost.tpot_s
        worker.learn(prompt_tokens, running, model, Cost(*measured[place].tolist()))
    return said


def _log_errors(observed: Floats, predicted: Floats) -> Floats:
    errors: Floats = np.abs(np.log(np.maximum(observed, 1e-6) / predicted))
    return errors


def _points(errors: Floats) -> tuple[float, ...]:
    """Returns the median error at each of `CURVE_POINTS`, from errors [configurations, requests]: over all
    configurations and over the following requests, half as many as went before, at least 5 and at most `WINDOW`."""
    return tuple(float(np.median(errors[:, at : at + min(WINDOW, max(5, at // 2))])) for at in CURVE_POINTS)


def r2(truth: Floats, guess: Floats, weight: Floats | None = None) -> float:
    """Returns the coefficient of determination R2 of the guesses; `weight` weighs the rows, all alike if it is None."""
    weight = np.ones(len(truth)) if weight is None else weight
    mean = np.average(truth, weights=weight)
    return float(1 - np.average((truth - guess) ** 2, weights=weight) / np.average((truth - mean) ** 2, weights=weight))
