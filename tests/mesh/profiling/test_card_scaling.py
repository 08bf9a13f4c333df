"""Costs over numbers of cards: what a fit finds, and what it says of a number that it has not seen."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import nnls

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.fitting import Observation, non_negative
from hmas.mesh.profiling.card_scaling import CardScaling, best_scaling, fit_scaling, left_out, mean_error

ONCE, DIVIDED = (2e-3, 1e-5, 3e-5, 1e-9, 0.0), (16e-3, 8e-5, 5e-5, 4e-8, 0.0)
PLAIN, TALKING = CardScaling(ONCE, DIVIDED), CardScaling(ONCE, DIVIDED, 2e-5)


def steps(scaling: CardScaling, gpus: int) -> list[Observation]:
    cost = scaling.at(gpus)
    return [
        Observation("decode", cost.step_s(tokens, seqs, seqs * context, 0.0), 1, tokens, seqs, seqs * context)
        for seqs, context, tokens in product((1, 8, 64), (200, 1500), (0, 300))
    ]


def exact(scaling: CardScaling, *sizes: int) -> dict[int, list[Observation]]:
    return {gpus: steps(scaling, gpus) for gpus in sizes}


@pytest.mark.parametrize("law", [PLAIN, TALKING])
def test_an_exact_law_is_found_and_tells_a_number_of_cards_between(law: CardScaling) -> None:
    found = best_scaling(exact(law, 1, 2, 8))
    assert found.scaling.at(4).step_s(100, 32, 9000, 0) == pytest.approx(law.at(4).step_s(100, 32, 9000, 0), rel=1e-3)
    assert law.talk_s or found.mean < 1e-3  # two numbers of cards do not tell talk
    assert found.scaling.talk_s == pytest.approx(law.talk_s, abs=1e-7)


def test_costs_grow_with_the_talk_of_all_cards_but_one() -> None:
    law = CardScaling((1e-3, 0, 1e-5, 0, 0), (8e-3, 0, 4e-5, 0, 0), 2e-5)
    assert law.at(1) == StepCostModel(9e-3, 0, 5e-5, 0, 0)
    assert law.at(4) == StepCostModel(3e-3, 0, 8e-5, 0, 0)


def test_a_left_out_number_of_cards_is_not_seen_by_the_fit() -> None:
    sizes = exact(PLAIN, 1, 2, 4, 8)
    slow = [Observation("decode", 2 * o.seconds, *o.features()) for o in sizes[4]]
    errors = left_out(sizes | {4: slow}, talks=False)
    assert errors[4] == pytest.approx(0.5, abs=0.01)  # the others tell half of it
    assert left_out(sizes, talks=False)[4] < 1e-3


def test_of_both_laws_the_one_that_tells_others_better_is_kept() -> None:
    sizes = exact(TALKING, 1, 2, 4, 8)
    plain, talking = (np.mean(list(left_out(sizes, talks=talks).values())) for talks in (False, True))
    assert talking < plain
    assert best_scaling(sizes).mean == pytest.approx(talking)


def test_two_numbers_of_cards_are_too_few_to_check_a_fit() -> None:
    with pytest.raises(ValueError, match="3 numbers of cards"):
        best_scaling(exact(PLAIN, 1, 2))


def test_an_error_is_relative_to_what_was_measured() -> None:
    observed = [Observation("decode", 0.02), Observation("decode", 0.005)]
    assert mean_error(StepCostModel(0.01, 0, 0, 0), observed) == pytest.approx((0.5 + 1.0) / 2)


def test_observations_of_one_kind_of_step_leave_the_rest_at_zero() -> None:
    sizes = {gpus: [Observation("decode", 0.01 / gpus)] * 5 for gpus in (1, 2, 4)}
    assert fit_scaling(sizes, talks=True).at(8) == StepCostModel(0.00125, 0, 0, 0, 0)


@given(
    st.integers(1, 12).flatmap(
        lambda columns: st.tuples(
            arrays(float, (9, columns), elements=st.integers(-9, 9).map(float)),
            arrays(float, 9, elements=st.integers(-9, 9).map(float)),
        )
    )
)
def test_non_negative_least_squares_are_those_of_scipy(case: tuple[np.ndarray, np.ndarray]) -> None:
    design, target = case
    solution, used = non_negative(design, target)
    assert (solution >= 0).all()
    assert used == [i for i, x in enumerate(solution) if x > 0]
    assert np.linalg.norm(design @ solution - target) == pytest.approx(nnls(design, target)[1], abs=1e-6)
