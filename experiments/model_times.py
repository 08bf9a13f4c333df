"""Measures how long the models of perception and prediction take for batches, and writes what the simulator reads."""

import json
from pathlib import Path
from typing import Any

import hmas.sim.times
from experiments.cognition.latency import batch_times, prompts
from experiments.study import Options, Study
from hmas.perception.backends.model import ModelBackend
from hmas.prediction.models.catboost_model import CatBoostCostModel


def measure(data: Path | None) -> dict[str, Any]:
    """Returns the times by model, as pairs of the number of rows and ms, with the versions of the models. `data` is the
    folder with prompts/; without it a few sentences in our own words are timed."""
    versions = {"versions": [ModelBackend().version, CatBoostCostModel().version]}
    return versions | batch_times(prompts(data or Path("data")))


STUDY: Study[None, None] = Study(
    name="model-times",
    about="Measures how long perception and prediction take for batches of each size, on one core, and writes the file "
    "that the simulator takes their times from. It takes half a minute and wants an idle machine.",
    takes=("out", "data"),
    defaults=Options(out=Path(hmas.sim.times.__file__).parent),
    also=lambda rows, options, found: {hmas.sim.times.FILE: json.dumps(measure(options.data)) + "\n"},
)
