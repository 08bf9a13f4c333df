from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.request import Cost, TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel, LinearProfile
from hmas.prediction.models.by_catalogue import ByCatalogue
from hmas.prediction.models.catboost_model import CatBoostCostModel

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
UNTRAINED = LinearCostModel(
    [
        LinearProfile(
            model="", hardware="", prefill_base=0.1, prefill_per_token=0.0, decode_base=0.02, decode_per_running=0.0
        )
    ]
)


@pytest.mark.parametrize("changes", [{"model": "tiny"}, {"hardware": "cpu"}, {"model": "", "hardware": ""}])
def test_the_trees_answer_for_what_the_catalogue_knows_alone(changes: dict[str, Any]) -> None:
    trained = CatBoostCostModel()
    unknown = replace(KNOWN, **changes)
    (expected,) = trained.predict([KNOWN])
    both = ByCatalogue(trained, UNTRAINED)
    assert both.predict([unknown, KNOWN, unknown]) == [Cost(0.1, 0.02), expected, Cost(0.1, 0.02)]
    assert both.predict([]) == []
    assert both.version == trained.version
