import json
import math
import shutil
import subprocess
import sys
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
    read_forests,
    write_forests,
)


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
    assert model.predict([]) == model.predict_upper([]) == []


def test_upper_bounds_lie_above(model: CatBoostCostModel) -> None:
    queries = [query(p, h, r, w) for p in (20, 400) for h in ("T4x4", "H100x1") for r in (0, 60) for w in (0, 30)]
    for cost, upper in zip(model.predict(queries), model.predict_upper(queries), strict=True):
        assert upper.ttft_s >= cost.ttft_s
        assert upper.tpot_s >= cost.tpot_s


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


def test_forests_are_read_as_they_were_written(tmp_path: Path, model: CatBoostCostModel) -> None:
    cost, upper = read_forests(ARTEFACTS / FORESTS_FILE)
    write_forests(tmp_path / FORESTS_FILE, upper, cost)
    first, second = read_forests(tmp_path / FORESTS_FILE)
    for written, read in ((upper, first), (cost, second)):
        for name in ("feature", "border", "leaves", "scale", "bias"):
            np.testing.assert_array_equal(getattr(written, name), getattr(read, name))


def test_rows_and_queries_agree(model: CatBoostCostModel) -> None:
    from hmas.prediction.models.catalogue import row

    rows = np.array([row(query())], np.float32)
    assert model.predict_rows(rows)[0].tolist() == pytest.approx(
        [model.predict([query()])[0].ttft_s, model.predict([query()])[0].tpot_s]
    )
