"""The CatBoost cost model: prefill time and time per output token from two ensembles of shallow trees.

A shell in that it opens files; what it computes depends on the queries alone.
"""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostRegressor
from numpy.typing import NDArray

from services.contracts.request import Cost
from services.prediction.backend import CostQuery
from services.prediction.catalogue import NAMES, row
from services.prediction.forest import Forest, forest

ARTEFACTS = Path(__file__).with_name("artefacts")
PREFILL_FILE, TPOT_FILE = "prefill.cbm", "tpot.cbm"
PREFILL_UPPER_FILE, TPOT_UPPER_FILE = "prefill_p90.cbm", "tpot_p90.cbm"
METADATA_FILE = "metadata.json"
FEW = 8  # rows; above it CatBoost's own batched evaluation is the faster one
LEAST_PREFILL_S, LEAST_TPOT_S = 1e-3, 1e-4  # regression may fall below what any accelerator does


class CatBoostCostModel:
    """`folder` holds the artefacts of `hmas train prediction`. FileNotFoundError or ValueError says what is wrong."""

    def __init__(self, folder: Path = ARTEFACTS) -> None:
        metadata = folder / METADATA_FILE
        if not metadata.is_file():
            raise FileNotFoundError(f"no cost model in {folder}: train one with `hmas train prediction`")
        self.metadata: dict[str, Any] = json.loads(metadata.read_text())
        if self.metadata["inputs"] != list(NAMES):
            raise ValueError(f"the cost model in {folder} has other inputs: train it again")
        self._cost = (_load(folder / PREFILL_FILE), _load(folder / TPOT_FILE))
        self._forest = _forest(self._cost)
        self._upper = (_load(folder / PREFILL_UPPER_FILE), _load(folder / TPOT_UPPER_FILE))
        content = (folder / PREFILL_FILE).read_bytes() + (folder / TPOT_FILE).read_bytes()
        self._version = f"catboost-{hashlib.sha256(content).hexdigest()[:8]}"

    @property
    def version(self) -> str:
        return self._version

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Expected cost of each query."""
        return _costs(self.predict_rows(_rows(queries))) if queries else []

    def predict_upper(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """90 % quantiles, never below the expected cost."""
        if not queries:
            return []
        rows = _rows(queries)
        return _costs(np.maximum(self.predict_upper_rows(rows), self.predict_rows(rows)))

    def predict_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """[n, len(NAMES)] -> [n, 2]: prefill and time per output token, seconds."""
        return _bounded(self._forest.predict(rows)) if len(rows) <= FEW else _predict(self._cost, rows)

    def predict_upper_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        return _predict(self._upper, rows)


def _rows(queries: Sequence[CostQuery]) -> NDArray[np.float32]:
    return np.array([row(query) for query in queries], np.float32)


def _predict(models: tuple[CatBoostRegressor, CatBoostRegressor], rows: NDArray[np.float32]) -> NDArray[np.float64]:
    return _bounded(np.stack([model.predict(rows, thread_count=1) for model in models], axis=1))


def _bounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded: NDArray[np.float64] = np.maximum(values, (LEAST_PREFILL_S, LEAST_TPOT_S))
    return bounded


def _costs(values: NDArray[np.float64]) -> list[Cost]:
    return [Cost(float(prefill), float(tpot)) for prefill, tpot in values]


def _forest(models: tuple[CatBoostRegressor, ...]) -> Forest:
    with tempfile.TemporaryDirectory() as folder:
        path, found = Path(folder) / "model.json", []
        for model in models:
            model.save_model(str(path), format="json")
            found.append(json.loads(path.read_text()))
    return forest(found)


def _load(path: Path) -> CatBoostRegressor:
    if not path.is_file():
        raise FileNotFoundError(f"no {path}: train the cost model with `hmas train prediction`")
    return CatBoostRegressor().load_model(str(path))
