"""Instance types and catalogues: what is refused, and how a type is found."""

from typing import Any

import pytest

from hmas.contracts.pool_plan import Catalogue, InstanceType
from hmas.contracts.step_cost import StepCostModel

STEP = StepCostModel(0.01, 0.0, 0.0, 0.0)
LEAST: dict[str, Any] = {
    "gpus": 1, "kv_tokens": 1, "max_num_seqs": 1, "max_num_batched_tokens": 1, "start_s": 0.0, "usd_h": 0.0,
    "error": 0.0,
}  # fmt: skip


def kind(name: str, **changes: Any) -> InstanceType:
    return InstanceType(name=name, model="m", hardware="h100", step=STEP, **LEAST | changes)


@pytest.mark.parametrize("name", LEAST)
def test_each_figure_has_a_least_value(name: str) -> None:
    kind("a")
    with pytest.raises(ValueError, match=f"the instance type a: .*{name}"):
        kind("a", **{name: LEAST[name] - 1})


def test_a_type_is_found_by_its_name() -> None:
    catalogue = Catalogue((kind("a"), kind("b", gpus=2), kind("c")))
    assert catalogue.named("b").gpus == 2
    with pytest.raises(ValueError, match="no instance type 'd': use one of a, b, c"):
        catalogue.named("d")


def test_no_name_stands_for_two_types() -> None:
    with pytest.raises(ValueError, match="names a, b more than once"):
        Catalogue((kind("b"), kind("a"), kind("b"), kind("c"), kind("a")))
