"""`hmas train prediction`: trains the cost model on measured performance and writes its artefacts.

A roofline's constants are fitted first, then CatBoost learns the logarithm of what remains, measured over physical.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from numpy.typing import NDArray
from scipy.optimize import minimize

from hmas.prediction.models.catboost_model import FORESTS_FILE, METADATA_FILE, corrected
from hmas.prediction.models.forest import Forest, forest
from hmas.prediction.models.roofline import DECODE, LEARNABLE, PREFILL, READ, Roofline
from hmas_lab.prediction.training.measurements import LLM_PILOT, Measurements, checksum, perf_files, pooled, read

Floats = NDArray[np.float64]
_LOOSE = 0.02  # how weakly a constant of the roofline is drawn to 1
_RANGE = 6.0  # how far, in the logarithm, a constant may be from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRecipe:
    """All parameters that determine a training run besides the data."""

    seed: int = 0
    test_share: float = 0.2
    trees: int = 800
    depth: int = 6
    rate: float = 0.1
    l2: float = 3.0
    borders: int = 32
    per_run: int = 300  # most rows of a run, so that a run of short requests does not count more than others
    other_weight: float = 6.0  # of a row from another source than LLM-Pilot, which has the most rows
    most_gaps: int = 32  # the weight of a time per token grows with the answer's gaps between tokens, up to this many


def write_forest(path: Path, trees: Forest) -> None:
    np.savez_compressed(
        path, allow_pickle=False, **{field.name: getattr(trees, field.name) for field in fields(Forest)}
    )


def held_apart(size: int, recipe: ForestRecipe) -> NDArray[np.bool_]:
    """Returns a mask of the `size` rows of a file that are held apart for testing (random, as the paper implies)."""
    return np.random.default_rng(recipe.seed).random(size) < recipe.test_share


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted cost model: the roofline, and the trees of prefill time and of time per token."""

    roofline: Roofline
    trees: tuple[CatBoostRegressor, ...]

    def predict(self, rows: NDArray[np.float32]) -> Floats:
        """Returns prefill time and time per output token, in s [n, 2], for rows [n, len(NAMES)]."""
        physical_s, read = self.roofline.learnable(rows)
        learnt = [model.predict(read[:, columns]) for model, columns in zip(self.trees, READ, strict=True)]
        return corrected(physical_s, np.stack(learnt, axis=1))


def train(
    data: Path, out: Path, recipe: ForestRecipe, command: str, report: Callable[[str], None], threads: int = 1
) -> Path:
    """Fits the model on the training rows of every file and writes artefacts and metadata into `out`.

    `report` gets lines of progress. Returns `out`.
    """
    files = perf_files(data)
    rows = pooled(measured.rows(~held_apart(len(measured), recipe)) for measured in map(read, files))
    report(f"{len(rows)} training rows")
    origin = {"recipe": asdict(recipe), "data_sha256": checksum(files), "command": command}
    write(fit(rows, recipe, threads), out, origin)
    report(f"{FORESTS_FILE} and {METADATA_FILE} written")
    return out


def write(fitted: Fitted, out: Path, origin: Mapping[str, Any]) -> None:
    """Writes the artefacts of a fitted model into the folder `out`; `origin` goes into the metadata."""
    out.mkdir(parents=True, exist_ok=True)
    starts = [columns.start for columns in READ]
    write_forest(out / FORESTS_FILE, forest([_as_json(model) for model in fitted.trees], starts))
    metadata = {"inputs": list(LEARNABLE), "roofline": fitted.roofline.names(), **origin}
    (out / METADATA_FILE).write_text(json.dumps(metadata, indent=1, sort_keys=True) + "\n")


def fit(rows: Measurements, recipe: ForestRecipe, threads: int = 1) -> Fitted:
    """Fits the roofline's constants, then trees to the logarithm of what remains, to at most `recipe.per_run` rows of
    each run. A time per token weighs more the longer its answer is, because it is the mean of more gaps."""
    rows = rows.rows(some_of_each_run(rows, recipe))
    weight = np.where(rows.source == LLM_PILOT, 1.0, recipe.other_weight)
    gaps = np.minimum(rows.gaps, recipe.most_gaps)
    targets = (
        (PREFILL, READ[0], rows.prefill_s, weight),
        (DECODE, READ[1], rows.tpot_s, weight * gaps),
    )
    known = [np.isfinite(times) & (times > 0.0) for _, _, times, _ in targets]
    prefill, decode = (
        _constants(rows.inputs[own, terms], times[own] * 1e3, weights[own])
        for own, (terms, _, times, weights) in zip(known, targets, strict=True)
    )
    roofline = Roofline(prefill, decode)
    physical_s, read = roofline.learnable(rows.inputs)
    trees = tuple(
        _regressor(recipe, threads).fit(
            read[own, columns], np.log(times[own] / physical_s[own, at]), sample_weight=weights[own]
        )
        for at, (own, (_, columns, times, weights)) in enumerate(zip(known, targets, strict=True))
    )
    return Fitted(roofline, trees)


def some_of_each_run(rows: Measurements, recipe: ForestRecipe) -> NDArray[np.int64]:
    """Returns the places of at most `per_run` random rows of each run, and of all rows of no run."""
    order = np.random.default_rng(recipe.seed).permutation(len(rows))
    by_run = order[np.argsort(rows.run[order], kind="stable")]
    runs = rows.run[by_run]
    place = np.arange(len(runs)) - np.searchsorted(runs, runs, "left")
    return np.sort(by_run[(place < recipe.per_run) | (runs < 0)])


def _constants(terms: NDArray[np.float32], measured_ms: Floats, weight: Floats) -> tuple[float, ...]:
    """Returns the positive constants by which the sum of the terms [n, k] is nearest to the measured times: least
    pseudo-Huber loss of the logarithm, in which a stall counts as one row, whatever its length."""
    times, log_measured, weight = terms.astype(np.float64), np.log(measured_ms), weight / weight.mean()

    def loss(log_constants: Floats) -> tuple[float, Floats]:
        constants = np.exp(log_constants)
        total = times @ constants
        error = np.log(total) - log_measured
        root = np.sqrt(1.0 + error**2)
        slope = ((weight * error / root / total) @ times) * constants
        value = float((weight * (root - 1.0)).sum() + _LOOSE * (log_constants**2).sum())
        return value, slope + 2.0 * _LOOSE * log_constants

    start = np.zeros(terms.shape[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(-_RANGE, _RANGE)] * len(start))
    return tuple(np.exp(found.x).tolist())


def _as_json(model: CatBoostRegressor) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return json.loads(path.read_text())


def _regressor(recipe: ForestRecipe, threads: int) -> CatBoostRegressor:
    return CatBoostRegressor(
        loss_function="RMSE", iterations=recipe.trees, depth=recipe.depth, learning_rate=recipe.rate,
        l2_leaf_reg=recipe.l2, border_count=recipe.borders, random_seed=recipe.seed, thread_count=threads,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip
