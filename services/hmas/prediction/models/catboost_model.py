"""The trained cost model: the physical term of prefill time and time per output token, times what CatBoost's trees
learnt of the difference to measured times.

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
from hmas.prediction.models.forest import Forest
from hmas.prediction.models.roofline import LEARNABLE, Roofline, costs, rows_of

ARTEFACTS = Path(__file__).parents[1] / "artefacts"
FORESTS_FILE, METADATA_FILE = "forests.npz", "metadata.json"
MOST = 3.0  # in the logarithm: trees that say more than a factor of twenty speak of what they never saw


class CatBoostCostModel:
    """The trained cost model. `folder` holds the artefacts that `hmas train prediction` wrote.

    The constructor raises FileNotFoundError if they are missing, ValueError if their inputs are of another version.
    """

    def __init__(self, folder: Path = ARTEFACTS) -> None:
        metadata = folder / METADATA_FILE
        if not metadata.is_file():
            raise FileNotFoundError(f"{folder} holds no cost model: train one with `hmas train prediction`")
        self.metadata: dict[str, Any] = json.loads(metadata.read_text())
        if self.metadata["inputs"] != list(LEARNABLE):
            raise ValueError(f"the cost model in {folder} has other inputs than this version: train it again")
        self.roofline = Roofline.named(self.metadata["roofline"])
        self.forest = read_forest(folder / FORESTS_FILE)
        digest = hashlib.sha256(metadata.read_bytes() + (folder / FORESTS_FILE).read_bytes()).hexdigest()
        self._version = f"catboost-{digest[:8]}"

    @property
    def version(self) -> str:
        return self._version

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        """Returns the expected cost of each query."""
        return costs(self.predict_rows(rows_of(queries))) if queries else []

    def predict_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns expected prefill time and time per output token, in s [n, 2], for rows [n, len(NAMES)]."""
        physical_s, read = self.roofline.learnable(rows)
        return corrected(physical_s, self.forest.predict(read))


def corrected(physical_s: NDArray[np.float64], learnt: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the physical times in s [n, 2] times the exponential of what the trees say of them."""
    times: NDArray[np.float64] = physical_s * np.exp(np.clip(learnt, -MOST, MOST))
    return times


def read_forest(path: Path) -> Forest:
    """Returns the trees of both times. Raises FileNotFoundError if `path` is missing."""
    if not path.is_file():
        raise FileNotFoundError(f"the file {path} is missing: train the cost model with `hmas train prediction`")
    with np.load(path, allow_pickle=False) as arrays:
        return Forest(**{field.name: arrays[field.name] for field in fields(Forest)})
