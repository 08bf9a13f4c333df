"""The largest chunk that decodes have slack for."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.plugins.vllm.chunking import MIN_CHUNK_TOKENS, SLACK_SHARE, DecodePace, StepCost

DECODE_S, TOKEN_S = 0.010, 0.0001


def learned() -> StepCost:
    cost = StepCost()
    for _ in range(200):
        cost.observe(DECODE_S, 0)
        cost.observe(DECODE_S + 500 * TOKEN_S, 500)
    return cost


def test_it_learns_a_step_and_a_prefill_token() -> None:
    cost = learned()
    assert cost.decode_s == pytest.approx(DECODE_S)
    assert cost.prefill_token_s == pytest.approx(TOKEN_S)


def test_the_chunk_fills_the_slack() -> None:
    assert learned().chunk(0.050, most=8192) == int((SLACK_SHARE * 0.050 - DECODE_S) / TOKEN_S)


def test_prefill_goes_on_without_slack() -> None:
    assert learned().chunk(-3.0, most=8192) == MIN_CHUNK_TOKENS
    assert learned().chunk(-3.0, most=32) == 32


def test_without_knowledge_or_promises_the_engine_decides() -> None:
    assert StepCost().chunk(0.001, most=2048) == 2048
    assert learned().chunk(inf, most=2048) == 2048


@given(st.lists(st.tuples(st.floats(), st.integers(-5, 10**6))), st.floats(allow_nan=False), st.integers(1, 10**5))
def test_any_observations_give_a_chunk_within_bounds(steps: list[tuple[float, int]], slack_s: float, most: int) -> None:
    cost = StepCost()
    for seconds, tokens in steps:
        cost.observe(seconds, tokens)
    assert min(most, MIN_CHUNK_TOKENS) <= cost.chunk(slack_s, most) <= most


def test_times_that_are_none_are_ignored() -> None:
    cost = StepCost()
    for seconds in (nan, inf, 0.0, -1.0):
        cost.observe(seconds, 0)
    assert cost == StepCost()


def test_slack_is_what_was_saved_since_the_first_token() -> None:
    pace = DecodePace(tpot_s=0.05, first_s=100.0)
    assert pace.slack_s(100.0, 1) == pytest.approx(0.05)
    assert pace.slack_s(100.1, 10) == pytest.approx(0.4)  # 10 tokens in 0.1 s: the eleventh is due at 100.5
