"""What a step costs, worked out by hand."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.step_cost import StepCostModel

COST = StepCostModel(1.0, 0.1, 0.01, 0.001, 0.0001)


def test_each_kind_of_work_costs_its_coefficient() -> None:
    assert COST.step_s(0, 0, 0, 0.0) == 1.0
    assert COST.step_s(10, 0, 0, 0.0) == pytest.approx(2.0)
    assert COST.step_s(0, 10, 0, 0.0) == pytest.approx(1.1)
    assert COST.step_s(0, 0, 10, 0.0) == pytest.approx(1.01)
    assert COST.step_s(0, 0, 0, 10.0) == pytest.approx(1.001)
    assert COST.prefill_s(10, 100.0) == pytest.approx(1.01)
    assert COST.times(3.0).step_s(10, 10, 10, 10.0) == pytest.approx(3.0 * COST.step_s(10, 10, 10, 10.0))


def test_nothing_is_computed_in_no_time_and_all_of_it_where_it_costs_nothing() -> None:
    assert COST.prefill_within(0.0, 100) == 0.0
    assert COST.prefill_within(-0.5, 100) == 0.0
    assert StepCostModel(1.0, 0.0, 0.0, 0.0).prefill_within(1.0, 0) == inf
    assert StepCostModel(1.0, 0.1, 0.0, 0.0).prefill_within(1.0, 100) == pytest.approx(10.0)


@given(
    st.builds(
        StepCostModel,
        st.just(1.0),
        st.floats(1e-6, 1e-2),
        st.just(0.0),
        st.just(0.0),
        st.just(0.0) | st.floats(1e-12, 1e-6),
    ),
    st.floats(1e-6, 10.0),
    st.integers(0, 100_000),
)
def test_a_chunk_of_that_length_takes_just_that_time(cost: StepCostModel, seconds: float, context: int) -> None:
    tokens = cost.prefill_within(seconds, context)
    assert cost.c_p_s * tokens + cost.c_pp_s * tokens * (context + tokens / 2) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [-1e-9, inf, float("nan")])
@pytest.mark.parametrize("at", range(5))
def test_no_coefficient_is_negative_or_without_bound(at: int, value: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        StepCostModel(*[value if i == at else 1.0 for i in range(5)])


def test_a_step_takes_some_time() -> None:
    with pytest.raises(ValueError, match="c0_s must be above 0"):
        StepCostModel(0.0, 1.0, 1.0, 1.0)
    StepCostModel(1e-9, 0.0, 0.0, 0.0)
