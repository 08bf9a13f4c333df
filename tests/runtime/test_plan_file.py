"""Plans as files: what they say, and what is told of one that is wrong."""

from pathlib import Path

import pytest

from hmas.contracts.pool_plan import Catalogue, Group, InstanceType, PoolPlan
from hmas.contracts.step_cost import StepCostModel
from hmas.runtime.plan_file import MAX_BYTES, parse_plan, read_plan

STEP = StepCostModel(0.01, 1e-5, 1e-5, 1e-8)


def kind(name: str, model: str = "m") -> InstanceType:
    return InstanceType(name=name, model=model, hardware="h100", gpus=1, step=STEP, kv_tokens=1000)


CATALOGUE = Catalogue((kind("tp1"), kind("tp2"), kind("other", "n")))


def test_a_plan_says_which_engines_each_pool_has_in_their_order() -> None:
    text = "a: {tp2: 1, tp1: 3}\nb: {other: 2}\n"
    assert parse_plan(text, CATALOGUE) == (
        PoolPlan(pool="a", groups=(Group("tp2", 1), Group("tp1", 3))),
        PoolPlan(pool="b", groups=(Group("other", 2),)),
    )
    assert parse_plan("a: {tp2: 0, tp1: 1}", CATALOGUE)[0].groups == (Group("tp1", 1),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {tp9: 1}", "a: the catalogue has no instance type 'tp9': use one of tp1, tp2, other"),
        ("a: {tp1: 1, other: 1}", "a: a pool serves one model, and these types serve m, n"),
        ("a: {tp1: 0}", "a: at least one engine must stay"),
        ("a: {tp1: -1}", "a.tp1: Input should be greater than or equal to 0"),
        ("a: {tp1: 1.0}", "a.tp1: Input should be a valid integer"),
        ("a: {}", "a: Dictionary should have at least 1 item"),
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
