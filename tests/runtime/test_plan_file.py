"""Plans as files: what they say, and what is told of one that is wrong."""

from pathlib import Path

import pytest

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Catalogue, Group, InstanceType, PoolPlan
from hmas.contracts.step_cost import StepCostModel
from hmas.runtime.plan_file import MAX_BYTES, parse_plan, read_plan, rendered_plan

STEP = StepCostModel(0.01, 1e-5, 1e-5, 1e-8)


def kind(name: str, model: str = "m") -> InstanceType:
    return InstanceType(name=name, model=model, hardware="h100", gpus=1, step=STEP, kv_tokens=1000)


CATALOGUE = Catalogue((kind("tp1"), kind("tp2"), kind("other", "n")))


def test_a_plan_says_which_engines_and_classes_each_pool_has_in_their_order() -> None:
    text = """
a: {engines: {tp2: 1, tp1: 3}, split: {cuts_s: [0.02], engines: [1, 3]}}
b: {engines: {other: 2}}
"""
    plans = (
        PoolPlan(pool="a", groups=(Group("tp2", 1), Group("tp1", 3)), split=Split((0.02,), (1, 3))),
        PoolPlan(pool="b", groups=(Group("other", 2),)),
    )
    assert parse_plan(text, CATALOGUE) == plans
    assert parse_plan(rendered_plan(plans), CATALOGUE) == plans
    assert parse_plan("a: {engines: {tp2: 0, tp1: 1}}", CATALOGUE)[0].groups == (Group("tp1", 1),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {engines: {tp9: 1}}", "a: the catalogue has no instance type 'tp9': use one of tp1, tp2, other"),
        ("a: {engines: {tp1: 1, other: 1}}", "a: a pool serves one model, and these types serve m, n"),
        ("a: {engines: {tp1: 0}}", "a: at least one engine must stay"),
        ("a: {engines: {tp1: -1}}", "a.engines.tp1: Input should be greater than or equal to 0"),
        ("a: {engines: {tp1: 1.0}}", "a.engines.tp1: Input should be a valid integer"),
        ("a: {engines: {}}", "a.engines: Dictionary should have at least 1 item"),
        ("a: {tp1: 1}", "a.engines: Field required: use `pool: {engines: {type: count}}`"),
        ("a: {engines: {tp1: 1}, splits: 1}", "a.splits: Extra inputs are not permitted"),
        ("a: {engines: {tp1: 2}, split: {cuts_s: [0.2, 0.1], engines: [1, 1, 1]}}", "a.split: cuts_s must ascend"),
        ("a: {engines: {tp1: 2}, split: {cuts_s: [0.1], engines: [1]}}", "a.split: engines must have one number more"),
        ("a: {engines: {tp1: 2}, split: {cuts_s: [], engines: [1]}}", "a.split.cuts_s: Tuple should have at least 1"),
        (
            "a: {engines: {tp1: 3}, split: {cuts_s: [0.1], engines: [1, 1]}}",
            "a: the split has 2 engines, and the pool 3",
        ),
        ("a: tp1", "a: Input should be a valid dictionary"),
        ("", "it: Input should be a valid dictionary"),
        ("{}", "it: Dictionary should have at least 1 item"),
        ("a: {tp1", "it is not YAML"),
    ],
)
def test_what_is_wrong_is_told(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="is not valid: ") as raised:
        read_plan(path, CATALOGUE)
    assert told in str(raised.value)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(ValueError, match="has more than"):
        read_plan(path, CATALOGUE)
