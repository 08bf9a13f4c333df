from dataclasses import replace
from importlib.resources import files
from math import inf, nan
from typing import Any

import pytest
import yaml

from hmas.contracts.request import Cost, TaskType
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel, profiles_from

QUERY = CostQuery(
    prompt_tokens=1000,
    output_tokens=100.0,
    model="some-model",
    hardware="A100-40GBx1",
    running=9,
    waiting=0,
    kv_usage=0.1,
    task=TaskType.QA,
)
ANY = {"model": "", "hardware": "", "prefill_base": 0.01, "prefill_per_token": 1e-4, "decode_base": 0.02,
       "decode_per_running": 1e-3}  # fmt: skip


def shipped() -> LinearCostModel:
    text = files("hmas.prediction").joinpath("profiles.yaml").read_text()
    return LinearCostModel(profiles_from(yaml.safe_load(text)))


def test_cost_is_linear_in_prompt_and_running() -> None:
    (cost,) = LinearCostModel(profiles_from([ANY])).predict([QUERY])
    assert cost == Cost(pytest.approx(0.11), pytest.approx(0.03))  # type: ignore[arg-type]


def test_the_first_match_counts_and_names_match_without_case() -> None:
    special = {**ANY, "model": "Llama", "hardware": "h100", "prefill_base": 9.0}
    model = LinearCostModel(profiles_from([special, ANY]))
    llama = replace(QUERY, model="meta-LLAMA/3", hardware="H100-80GBx4")
    first, second = model.predict([llama, replace(llama, hardware="A100")])
    assert (first.ttft_s > 9.0, second.ttft_s < 1.0) == (True, True)


def test_shipped_profiles_reproduce_measured_points() -> None:
    """Splitwise: Llama-2-70B, 512 prompt tokens alone on two A100 takes 196 ms, then 55 ms a token."""
    (cost,) = shipped().predict(
        [replace(QUERY, model="Llama-2-70B", hardware="A100-80GBx2", prompt_tokens=512, running=0)]
    )
    assert cost.ttft_s == pytest.approx(0.196, rel=0.1)
    assert cost.tpot_s == pytest.approx(0.055, rel=0.1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "a list of at least one row"),
        ([], "a list of at least one row"),
        (["x"], "row 1 must be a mapping"),
        ([{**ANY, "extra": 1}], "row 1 must have exactly"),
        ([ANY, {**ANY, "decode_base": -1}], "row 2: decode_base must be seconds"),
        ([{**ANY, "decode_base": "fast"}], "row 1: decode_base"),
        ([{**ANY, "decode_base": float("nan")}], "row 1: decode_base"),
        ([{**ANY, "model": "x"}], "last row must apply to all"),
    ],
)
def test_a_broken_file_says_where(rows: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        profiles_from(rows)


@pytest.mark.parametrize("value", [True, -1e-9, inf, nan, "1", None])
def test_a_coefficient_is_a_number_of_seconds_from_zero_on(value: object) -> None:
    with pytest.raises(ValueError, match="row 1: prefill_base must be seconds, 0 or more"):
        profiles_from([{**ANY, "prefill_base": value}])
    assert profiles_from([{**ANY, "prefill_base": 0}])[0].prefill_base == 0.0


@pytest.mark.parametrize(("field", "value"), [("model", "x"), ("hardware", "x")])
def test_the_last_profile_applies_to_all(field: str, value: str) -> None:
    with pytest.raises(ValueError, match="the last row must apply to all"):
        profiles_from([ANY, {**ANY, field: value}])
    assert len(profiles_from([{**ANY, field: value}, ANY])) == 2


def test_a_profile_applies_where_both_names_match() -> None:
    rows = [{**ANY, "model": "some", "hardware": "h100", "prefill_base": 7.0}, ANY]
    assert LinearCostModel(profiles_from(rows)).predict([QUERY])[0].ttft_s == pytest.approx(0.11)
    rows[0]["hardware"] = "a100"
    assert LinearCostModel(profiles_from(rows)).predict([QUERY])[0].ttft_s == pytest.approx(7.1)


def test_a_broken_row_is_named_by_its_number() -> None:
    for rows in ([5, ANY], [{}, ANY]):
        with pytest.raises(ValueError, match="row 1 must"):
            profiles_from(rows)
    with pytest.raises(ValueError, match="a list of at least one row"):
        profiles_from("x")
