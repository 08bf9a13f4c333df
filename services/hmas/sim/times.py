"""How long models take in virtual time."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

FILE = "model_times.json"  # measured by `python -m experiments model-times`


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """`by_rows` are pairs, in order, of a number of rows and of the time in s that a model takes for a batch of so
    many. A call is answered within `budget_s`, by the agent's fallback if the model is late. A call and its answer take
    `network_s` each. All times are in s."""

    by_rows: tuple[tuple[int, float], ...]
    budget_s: float = 0.04
    network_s: float = 0.001

    def batch_s(self, rows: int) -> float:
        """Returns the time for a batch: on the line between the neighbours in `by_rows`, below the first of them the
        time of that one, and beyond the last as much for each row as it takes there."""
        least, least_s = self.by_rows[0]
        if rows <= least:
            return least_s
        for (low, low_s), (high, high_s) in zip(self.by_rows, self.by_rows[1:], strict=False):
            if rows <= high:
                return low_s + (high_s - low_s) * (rows - low) / (high - low)
        most, most_s = self.by_rows[-1]
        return most_s * rows / most


@cache
def measured_times(model: str) -> ModelTimes:
    """Returns the times of a model that ships, as they were measured: `perception` or `prediction`."""
    document = json.loads((files("hmas.sim") / FILE).read_text(encoding="utf-8"))
    return ModelTimes(_pairs(document[model]))


def _pairs(rows: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(count), float(ms) / 1e3) for count, ms in rows)
