"""Measures how long the models of perception and prediction take for batches, and writes what the simulator reads."""

import json
from pathlib import Path
from typing import Any

import hmas.sim.times
from benchmarks.bench_cognition import batch_times, prompts
from hmas.perception.backends.model import ModelBackend
from hmas.prediction.models.catboost_model import CatBoostCostModel


def measure(data: Path | None) -> dict[str, Any]:
    """Returns the times by model, as pairs of the number of rows and ms, with the versions of the models. `data` is the
    folder with prompts/; without it a few sentences in our own words are timed."""
    versions = {"versions": [ModelBackend().version, CatBoostCostModel().version]}
    return versions | batch_times(prompts(data or Path("data")))


def write(times: dict[str, Any], out: Path | None) -> Path:
    """Writes the times to `out`, by default to the file of the simulator, and returns its path."""
    path = out or Path(hmas.sim.times.__file__).with_name(hmas.sim.times.FILE)
    path.write_text(json.dumps(times) + "\n", encoding="utf-8")
    return path
