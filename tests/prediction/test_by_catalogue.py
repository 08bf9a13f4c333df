from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.request import TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.by_catalogue import shipped
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.prediction.models.roofline import RooflineCostModel

KNOWN = CostQuery(
    prompt_tokens=1000,
    output_tokens=100.0,
    model="llama-13b",
    hardware="A100x1",
    running=9,
    waiting=0,
    kv_usage=0.1,
    task=TaskType.QA,
)


@pytest.mark.parametrize("changes", [{"model": "tiny"}, {"hardware": "cpu"}, {"model": "", "hardware": ""}])
def test_the_trees_answer_for_what_the_catalogue_knows_alone(changes: dict[str, Any]) -> None:
    trained = CatBoostCostModel()
    unknown = replace(KNOWN, **changes)
    physical = RooflineCostModel(trained.roofline).predict([unknown])[0]
    (expected,) = trained.predict([KNOWN])
    both = shipped()
    assert both.predict([unknown, KNOWN, unknown]) == [physical, expected, physical]
    assert both.predict([]) == []
    assert both.version == trained.version
