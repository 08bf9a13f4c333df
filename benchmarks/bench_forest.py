"""Measures why the cost trees are exported: a forest of CatBoost's trees against CatBoost itself, on one core.

The forest goes row by row, so that a full batch may be cheaper in CatBoost; full batches come at several hundred
requests a second.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from catboost import CatBoostRegressor

from hmas.prediction.models.forest import DEPTH, forest
from hmas.prediction.models.roofline import NAMES

TREES, TARGETS, ROUNDS, CALLS = 1000, 2, 5, 40  # as many trees as ship
BATCHES = (1, 4, 32)  # a question alone, those of a usual batch, of a full one

Row = dict[str, object]


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(300, len(NAMES))).astype(np.float32)
    models = [_fitted(inputs, inputs @ rng.normal(size=len(NAMES))) for _ in range(TARGETS)]
    trees = forest([json_of for _, json_of in models])

    def catboost(some: np.ndarray) -> None:
        for model, _ in models:
            model.predict(some, thread_count=1)

    found: list[Row] = []
    for size in BATCHES:
        some = inputs[:size]
        ratio = _seconds(lambda some=some: trees.predict(some)) / _seconds(lambda some=some: catboost(some))  # type: ignore[misc]
        judged = size < BATCHES[-1]
        found.append({"name": f"exported cost trees over CatBoost, {size} at once", "value": ratio, "unit": "x",
                      "goal": "<= 1" if judged else None, "met": ratio <= 1.0 if judged else None})  # fmt: skip
    return found


def _fitted(inputs: np.ndarray, target: np.ndarray) -> tuple[CatBoostRegressor, dict[str, Any]]:
    model = CatBoostRegressor(
        iterations=TREES, depth=DEPTH, thread_count=1, random_seed=0, verbose=False, allow_writing_files=False
    ).fit(inputs, target)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        return model, json.loads(path.read_text())


def _seconds(call: Callable[[], object]) -> float:
    """Returns the time of a call: the mean of the fastest round."""
    times = []
    for _ in range(ROUNDS):
        start = perf_counter()
        for _ in range(CALLS):
            call()
        times.append((perf_counter() - start) / CALLS)
    return min(times)
