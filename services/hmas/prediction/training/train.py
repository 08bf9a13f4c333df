"""`hmas train prediction`: trains CatBoost cost models on measured performance and writes their artefacts."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from numpy.typing import NDArray

from hmas.prediction.models.catalogue import NAMES
from hmas.prediction.models.catboost_model import FORESTS_FILE, METADATA_FILE, write_forests
from hmas.prediction.models.forest import Forest, forest
from hmas.prediction.training.measurements import LLM_PILOT, Measurements, checksum, perf_files, read

PREFILL, TPOT = "prefill", "tpot"
PREFILL_UPPER, TPOT_UPPER = "prefill_p90", "tpot_p90"
THROUGHPUT_FILE, LATENCY_FILE = "throughput.cbm", "latency_per_token.cbm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRecipe:
    """All parameters that determine a training run besides the data."""

    seed: int = 0
    test_share: float = 0.2
    trees: int = 1000
    depth: int = 8
    rate: float = 0.15
    upper_trees: int = 300
    upper_depth: int = 6
    upper: float = 0.9
    most_gaps: int = 32  # the weight of a time per token grows with the answer's gaps between tokens, up to this many
    other_weight: float = 50.0  # of a row from another source than LLM-Pilot, which has a hundred times their rows
    upper_rows: int = 150_000  # most rows for the quantile models, whose training is slow and gains little from more


def held_apart(size: int, recipe: ForestRecipe) -> NDArray[np.bool_]:
    """Returns a mask of the `size` rows of a file that are held apart for testing (random, as the paper implies)."""
    return np.random.default_rng(recipe.seed).random(size) < recipe.test_share


def train(
    data: Path, out: Path, recipe: ForestRecipe, command: str, report: Callable[[str], None], threads: int = 1
) -> Path:
    """Fits all models on the training rows of every file and writes artefacts and metadata into `out`.

    `report` gets lines of progress. Returns `out`.
    """
    files = perf_files(data)
    sets = [measured.rows(~held_apart(len(measured.prefill_s), recipe)) for measured in map(read, files)]
    report(f"{sum(len(s.prefill_s) for s in sets)} training rows")
    out.mkdir(parents=True, exist_ok=True)
    models = {**fit_cost(sets, recipe, threads), **fit_upper(sets, recipe, threads)}
    write_forests(out / FORESTS_FILE, *forests(models))
    report(f"{FORESTS_FILE} fitted")
    pilot = next(s for s in sets if s.source == LLM_PILOT)
    for name, target in ((THROUGHPUT_FILE, throughput(pilot)), (LATENCY_FILE, latency_per_token(pilot))):
        _regressor(recipe, threads).fit(pilot.inputs, target).save_model(str(out / name))
        report(f"{name} fitted")
    metadata = {
        "inputs": list(NAMES),
        "recipe": asdict(recipe),
        "data_sha256": checksum(files),
        "command": command,
    }
    (out / METADATA_FILE).write_text(json.dumps(metadata, indent=1, sort_keys=True) + "\n")
    return out


def fit_cost(sets: Sequence[Measurements], recipe: ForestRecipe, threads: int) -> dict[str, CatBoostRegressor]:
    """Fits prefill time and time per token; an answer of more tokens gives a more reliable mean and weighs more."""
    inputs, weight = np.concatenate([s.inputs for s in sets]), _weights(sets, recipe)
    prefill, tpot = np.concatenate([s.prefill_s for s in sets]), np.concatenate([s.tpot_s for s in sets])
    gaps = np.minimum(np.concatenate([s.output_tokens for s in sets]) - 1, recipe.most_gaps)
    known = np.isfinite(tpot)
    return {
        PREFILL: _regressor(recipe, threads).fit(inputs, prefill, sample_weight=weight),
        TPOT: _regressor(recipe, threads).fit(inputs[known], tpot[known], sample_weight=(weight * gaps)[known]),
    }


def fit_upper(sets: Sequence[Measurements], recipe: ForestRecipe, threads: int) -> dict[str, CatBoostRegressor]:
    inputs, weight = np.concatenate([s.inputs for s in sets]), _weights(sets, recipe)
    prefill, tpot = np.concatenate([s.prefill_s for s in sets]), np.concatenate([s.tpot_s for s in sets])
    models = {}
    for name, target in ((PREFILL_UPPER, prefill), (TPOT_UPPER, tpot)):
        known = np.flatnonzero(np.isfinite(target))
        rows = np.random.default_rng(recipe.seed).permutation(known)[: recipe.upper_rows]
        model = CatBoostRegressor(
            loss_function=f"Quantile:alpha={recipe.upper}", iterations=recipe.upper_trees, depth=recipe.upper_depth,
            learning_rate=recipe.rate, random_seed=recipe.seed, thread_count=threads, verbose=False,
            allow_writing_files=False,
        )  # fmt: skip
        models[name] = model.fit(inputs[rows], target[rows], sample_weight=weight[rows])
    return models


def throughput(rows: Measurements) -> NDArray[np.float64]:
    """Returns the output tokens per second of each request, over its whole latency."""
    return rows.output_tokens / rows.latency_s


def latency_per_token(rows: Measurements) -> NDArray[np.float64]:
    """Returns each request's mean latency per output token, in s."""
    return rows.latency_s / rows.output_tokens


def forests(models: Mapping[str, CatBoostRegressor]) -> tuple[Forest, Forest]:
    """Converts the trained models, by name, into the forests of expected costs and of upper quantiles."""
    cost, upper = (
        forest([_as_json(models[name]) for name in names]) for names in ((PREFILL, TPOT), (PREFILL_UPPER, TPOT_UPPER))
    )
    return cost, upper


def _as_json(model: CatBoostRegressor) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return json.loads(path.read_text())


def _weights(sets: Sequence[Measurements], recipe: ForestRecipe) -> NDArray[np.float64]:
    return np.concatenate(
        [np.full(len(s.prefill_s), 1.0 if s.source == LLM_PILOT else recipe.other_weight) for s in sets]
    )


def _regressor(recipe: ForestRecipe, threads: int) -> CatBoostRegressor:
    return CatBoostRegressor(
        loss_function="RMSE", iterations=recipe.trees, depth=recipe.depth, learning_rate=recipe.rate,
        random_seed=recipe.seed, thread_count=threads, verbose=False, allow_writing_files=False,
    )  # fmt: skip
