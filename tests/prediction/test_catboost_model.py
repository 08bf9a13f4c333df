import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catboost_model import (
    ARTEFACTS,
    FORESTS_FILE,
    METADATA_FILE,
    CatBoostCostModel,
    read_forest,
)
from hmas.prediction.models.roofline import DECODE_TERMS, PREFILL_TERMS, Roofline, rows_of


@pytest.fixture(scope="module")
def model() -> CatBoostCostModel:
    return CatBoostCostModel()


def query(prompt: int = 200, hardware: str = "A100x1", running: int = 4, waiting: int = 0) -> CostQuery:
    return CostQuery(
        prompt_tokens=prompt,
        output_tokens=60.0,
        model="llama-13b",
        hardware=hardware,
        running=running,
        waiting=waiting,
        kv_usage=0.2,
        task=TaskType.QA,
    )


def test_metadata_tells_where_it_is_from(model: CatBoostCostModel) -> None:
    assert len(model.metadata["data_sha256"]) == 64
    assert model.metadata["command"].startswith("hmas train prediction")


def test_costs_are_positive_and_in_order(model: CatBoostCostModel) -> None:
    queries = [query(prompt) for prompt in (1, 200, 800)] + [
        CostQuery(
            prompt_tokens=5,
            output_tokens=1.0,
            model="?",
            hardware="?",
            running=0,
            waiting=0,
            kv_usage=0.0,
            task=TaskType.UNKNOWN,
        )
    ]
    costs = model.predict(queries)
    assert len(costs) == len(queries)
    assert all(cost.ttft_s > 0 and cost.tpot_s > 0 and math.isfinite(cost.ttft_s) for cost in costs)
    alone = [model.predict([q])[0] for q in queries]
    assert costs == alone
    assert model.predict([]) == []


def test_load_and_slow_hardware_cost_more(model: CatBoostCostModel) -> None:
    idle, busy = model.predict([query(running=0), query(running=100, waiting=27)])
    assert busy.ttft_s > 2 * idle.ttft_s
    assert busy.tpot_s > idle.tpot_s
    fast, slow = model.predict([query(hardware="H100x1"), query(hardware="V100x2")])
    assert slow.tpot_s > fast.tpot_s


def test_missing_or_foreign_artefacts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="hmas train prediction"):
        CatBoostCostModel(tmp_path)
    shutil.copytree(ARTEFACTS, tmp_path / "a")
    metadata = json.loads((tmp_path / "a" / METADATA_FILE).read_text())
    (tmp_path / "a" / METADATA_FILE).write_text(json.dumps({**metadata, "inputs": ["x"]}))
    with pytest.raises(ValueError, match="train it again"):
        CatBoostCostModel(tmp_path / "a")


def test_the_service_runs_without_catboost() -> None:
    code = (
        "import sys; sys.modules['catboost'] = None\n"
        "from hmas.prediction.models.catboost_model import CatBoostCostModel\n"
        "print(CatBoostCostModel().version)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("catboost-"), done.stderr


def test_trees_are_read_as_they_were_written(tmp_path: Path, model: CatBoostCostModel) -> None:
    from hmas_lab.prediction.training.train import write_forest

    write_forest(tmp_path / FORESTS_FILE, model.forest)
    read = read_forest(tmp_path / FORESTS_FILE)
    for name in ("feature", "border", "leaves", "scale", "bias"):
        np.testing.assert_array_equal(getattr(model.forest, name), getattr(read, name))


def test_a_trained_model_says_what_catboost_says(tmp_path: Path) -> None:
    """The artefact's roofline and trees against the fit's own, on rows it was fitted to and on others."""
    pytest.importorskip("catboost")
    from hmas_lab.prediction.training.measurements import Measurements
    from hmas_lab.prediction.training.train import ForestRecipe, fit, write

    rng = np.random.default_rng(0)
    queries = [
        replace(
            query(int(rng.integers(1, 4000)), hardware, int(rng.integers(0, 60)), int(rng.integers(0, 9))),
            model=name, output_tokens=float(rng.integers(1, 900)),
        )
        for name in ("llama-13b", "qwen3-30b-a3b", "flan-t5-xl")
        for hardware in ("A100x1", "H100x4", "T4x2")
        for _ in range(40)
    ]  # fmt: skip
    rows = rows_of(queries)
    ones = Roofline((1.0,) * len(PREFILL_TERMS), (1.0,) * len(DECODE_TERMS))
    times = ones.seconds(rows) * rng.lognormal(0.0, 0.3, (len(rows), 2))
    measured = Measurements(
        inputs=rows,
        prefill_s=times[:, 0],
        tpot_s=times[:, 1],
        latency_s=times.sum(axis=1),
        output_tokens=np.full(len(rows), 2.0),
        configuration=np.full(len(rows), "", object),
        model=np.full(len(rows), "", object),
        card=np.full(len(rows), "", object),
        source=np.full(len(rows), "", object),
        run=np.full(len(rows), -1),
        arrival_s=np.full(len(rows), np.nan),
    )
    fitted = fit(measured, ForestRecipe(trees=40))
    write(fitted, tmp_path, {"recipe": {}})
    model = CatBoostCostModel(tmp_path)
    others = rows_of([replace(q, running=q.running + 7, hardware="A10x2") for q in queries])
    for some in (rows, others):
        np.testing.assert_allclose(model.predict_rows(some), fitted.predict(some), rtol=1e-4)
    said = np.array([(cost.ttft_s, cost.tpot_s) for cost in model.predict(queries)])
    np.testing.assert_allclose(said, fitted.predict(rows), rtol=1e-4)
    assert not np.allclose(said, fitted.roofline.seconds(rows), rtol=0.05)  # the trees have a say
