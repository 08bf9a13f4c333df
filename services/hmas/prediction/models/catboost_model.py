"""The CatBoost cost model: prefill time and time per output token from two ensembles of shallow trees.

It opens files and is therefore part of the shell; its results depend on the queries alone. CatBoost itself, half a
gigabyte with its dependencies, is needed to train the trees, not to evaluate them.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import Cost
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catalogue import NAMES, row
from hmas.prediction.models.forest import Forest

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
FORESTS_FILE = "forests.npz"  # the forests of expected costs and of 90 % quantiles
METADATA_FILE = "metadata.json"
LEAST_PREFILL_S, LEAST_TPOT_S = 1e-3, 1e-4  # a regression may predict less than any accelerator needs


class CatBoostCostModel:
    """The trained cost model. `folder` holds the artefacts that `hmas train prediction` wrote.

    The constructor raises FileNotFoundError if they are missing, ValueError if their inputs are of another version.
    """

    def __init__(self, folder: Path = ARTEFACTS) -> None:
        metadata = folder / METADATA_FILE
        if not metadata.is_file():
            raise FileNotFoundError(f"{folder} holds no cost model: train one with `hmas train prediction`")
        self.metadata: dict[str, Any] = json.loads(metadata.read_text())
        if self.metadata["inputs"] != list(NAMES):
            raise ValueError(f"the cost model in {folder} has other inputs than this version: train it again")
        self._cost, self._upper = read_forests(folder / FORESTS_FILE)
        self._version = f"catboost-{hashlib.sha256((folder / FORESTS_FILE).read_bytes()).hexdigest()[:8]}"

    @property
    def version(self) -> str:
        return self._version

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Returns the expected cost of each query."""
        return _costs(self.predict_rows(_rows(queries))) if queries else []

    def predict_upper(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Returns the 90 % quantile of each query's cost, never below the expected cost."""
        if not queries:
            return []
        rows = _rows(queries)
        return _costs(np.maximum(self.predict_upper_rows(rows), self.predict_rows(rows)))

    def predict_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns expected prefill time and time per output token, in s [n, 2], for rows [n, len(NAMES)]."""
        return _bounded(self._cost.predict(rows))

    def predict_upper_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        return _bounded(self._upper.predict(rows))


def _rows(queries: Sequence[CostQuery]) -> NDArray[np.float32]:
    return np.array([row(query) for query in queries], np.float32)


def _bounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    bounded: NDArray[np.float64] = np.maximum(values, (LEAST_PREFILL_S, LEAST_TPOT_S))
    return bounded


def _costs(values: NDArray[np.float64]) -> list[Cost]:
    return [Cost(float(prefill), float(tpot)) for prefill, tpot in values]


def write_forests(path: Path, cost: Forest, upper: Forest) -> None:
    arrays = {
        f"{name}.{field.name}": getattr(trees, field.name)
        for name, trees in (("cost", cost), ("upper", upper))
        for field in fields(Forest)
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


def read_forests(path: Path) -> tuple[Forest, Forest]:
    """Returns the forests of expected costs and of 90 % quantiles. Raises FileNotFoundError if `path` is missing."""
    if not path.is_file():
        raise FileNotFoundError(f"the file {path} is missing: train the cost model with `hmas train prediction`")
    with np.load(path, allow_pickle=False) as arrays:
        cost, upper = (
            Forest(**{field.name: arrays[f"{name}.{field.name}"] for field in fields(Forest)})
            for name in ("cost", "upper")
        )
    return cost, upper
