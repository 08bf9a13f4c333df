"""Evaluates CatBoost's symmetric trees; for a few rows it is some ten times faster than CatBoost itself.

A symmetric tree of depth d asks the same d questions on every path, so that the answers, packed into bits, are the
leaf's number. The questions of all trees are evaluated at once. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEPTH = 8  # questions per tree, one byte of answers; shallower trees get questions whose answer is always no


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """The trees for k targets, t per target.

    `feature` and `border` are [k * t * DEPTH], `leaves` [k * t, 256], `scale` and `bias` [k]. A question is
    `row[feature] > border`; for NaN the answer is no, as in CatBoost's default.
    """

    feature: NDArray[np.int64]
    border: NDArray[np.float32]
    leaves: NDArray[np.float32]
    scale: NDArray[np.float64]
    bias: NDArray[np.float64]

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """Returns the targets [n, k] of rows [n, inputs], row by row, so that the data stay in the CPU cache."""
        return np.array([self._one(row) for row in rows]).reshape(len(rows), len(self.bias))

    def _one(self, row: NDArray[np.float32]) -> NDArray[np.float64]:
        leaf = np.packbits(row[self.feature] > self.border, bitorder="little").astype(np.int64)
        leaf += np.arange(len(self.leaves)) << DEPTH
        values = self.leaves.ravel().take(leaf).reshape(len(self.bias), -1)
        sums: NDArray[np.float64] = values.sum(axis=1, dtype=np.float64) * self.scale + self.bias
        return sums


def forest(models: Sequence[Mapping[str, Any]], starts: Sequence[int] | None = None) -> Forest:
    """Returns a forest from CatBoost models in its JSON format, one per target. `starts` are the columns of the
    forest's rows at which the columns of each model begin, 0 if it is None.

    Raises ValueError for trees that are too deep or have categorical splits.
    """
    most = max(len(model["oblivious_trees"]) for model in models)
    shape = (len(models), most, DEPTH)
    feature, border = np.zeros(shape, np.int64), np.full(shape, np.inf, np.float32)
    leaves = np.zeros((len(models), most, 1 << DEPTH), np.float32)
    for target, (model, start) in enumerate(zip(models, starts or [0] * len(models), strict=True)):
        for number, tree in enumerate(model["oblivious_trees"]):
            splits = tree["splits"] or []
            if len(splits) > DEPTH or any(split["split_type"] != "FloatFeature" for split in splits):
                raise ValueError(
                    f"a forest holds only numeric symmetric trees of at most {DEPTH} splits: train with a smaller "
                    "depth and without categories"
                )
            for place, split in enumerate(splits):
                feature[target, number, place] = start + split["float_feature_index"]
                border[target, number, place] = split["border"]
            leaves[target, number, : len(tree["leaf_values"])] = tree["leaf_values"]
    scales = [model["scale_and_bias"] for model in models]
    return Forest(
        feature=feature.ravel(),
        border=border.ravel(),
        leaves=leaves.reshape(-1, 1 << DEPTH),
        scale=np.array([scale for scale, _ in scales], np.float64),
        bias=np.array([bias[0] for _, bias in scales], np.float64),
    )
