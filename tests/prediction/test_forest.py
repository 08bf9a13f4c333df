import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catboost import CatBoostRegressor

from hmas.prediction.models.forest import DEPTH, forest


def trained(folder: Path, rows: np.ndarray, target: np.ndarray, depth: int) -> tuple[CatBoostRegressor, dict[str, Any]]:
    model = CatBoostRegressor(
        iterations=20 + depth, depth=depth, learning_rate=0.3, random_seed=0, thread_count=1, verbose=False,
        allow_writing_files=False,
    ).fit(rows, target)  # fmt: skip
    model.save_model(str(folder / "m.json"), format="json")
    return model, json.loads((folder / "m.json").read_text())


def test_a_forest_says_what_catboost_says_missing_values_and_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 6)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    first = np.nan_to_num(rows[:, 0] * 3 + rows[:, 1] * rows[:, 2])
    second = np.nan_to_num(np.sin(rows[:, 3])) + 100
    deep, deep_json = trained(tmp_path, rows, first, 6)
    shallow, shallow_json = trained(tmp_path, rows, second, 3)
    want = np.stack([deep.predict(rows), shallow.predict(rows)], axis=1)
    got = forest([deep_json, shallow_json]).predict(rows)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert forest([deep_json]).predict(rows[:0]).shape == (0, 1)
    moved = forest([deep_json, shallow_json], [0, 6]).predict(np.concatenate([rows, rows], axis=1))
    np.testing.assert_array_equal(moved, got)  # the second model's columns begin after those of the first
    assert not np.allclose(forest([deep_json, shallow_json], [0, 6]).predict(np.pad(rows, ((0, 0), (0, 6)))), got)


def test_deeper_trees_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 12)).astype(np.float32)
    _, model = trained(tmp_path, rows, rows.sum(axis=1), DEPTH + 1)
    with pytest.raises(ValueError, match="at most 8 splits"):
        forest([model])
