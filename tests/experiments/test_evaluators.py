"""The evaluators' page: how far an evaluator is from a judge, and what its choice loses."""

import pytest

from experiments.evaluators import (
    AUTO,
    EVALUATORS,
    PLANNED,
    POOLS,
    QUICK,
    EvaluatorRow,
    accuracy,
    by_pool,
    overall,
    types_of,
)
from experiments.report.evaluators import goals, page_of
from experiments.study import Options


def row(pool: str, number: int, quick: float, planned: float) -> EvaluatorRow:
    shares = dict.fromkeys(EVALUATORS, 0.5) | {QUICK: quick, PLANNED: planned, AUTO: planned}
    cpu_s = dict.fromkeys(shares, 0.1)
    return EvaluatorRow(
        pool=pool, shape=(number,), requests=100, shares=shares, cpu_s=cpu_s, runs=2, cuts_ms=[], engines=[]
    )


ROWS = [row("a", 1, 0.9, 0.8), row("a", 2, 0.7, 0.85), row("a", 3, 0.2, 0.2), row("b", 1, 0.5, 0.4)]


def test_accuracy_is_told_in_points_and_a_choice_by_what_the_judge_sees_in_it() -> None:
    found = accuracy(ROWS[:3], QUICK, PLANNED)
    assert found.mean == pytest.approx(100 * (0.1 + 0.15 + 0.0) / 3)
    assert found.largest == pytest.approx(15.0)
    assert found.bias == pytest.approx(100 * (0.1 - 0.15) / 3)
    assert found.spearman == pytest.approx(0.5)
    assert found.lost == pytest.approx(5.0)
    assert accuracy(ROWS[:3], EVALUATORS[1], PLANNED).lost == pytest.approx(65.0)  # all tie: the worst of them


def test_pools_with_few_shapes_are_left_out_and_the_worst_pool_counts() -> None:
    better = [row("c", number, share, share) for number, share in ((1, 0.1), (2, 0.2), (3, 0.3))]
    assert list(by_pool([*ROWS, *better])) == ["a", "c"]
    found = overall([*ROWS, *better], QUICK, PLANNED)
    assert found.lost == pytest.approx(5.0)
    assert found.largest == pytest.approx(15.0)
    assert found.spearman == pytest.approx(0.75)


def test_every_shape_is_made_of_types_that_ship() -> None:
    for pool in POOLS:
        assert {gpus for shape in pool.shapes for gpus in shape} <= set(types_of(pool))
        assert len(set(pool.shapes)) >= 8


def test_goals_are_not_judged_before_all_is_computed() -> None:
    assert all(goal.met is None for goal in goals(ROWS))
    values = page_of(ROWS, Options(), {})
    assert values["missing"] == sum(len(pool.shapes) for pool in POOLS) - len(ROWS)
    assert len(values["summary"]) == len(EVALUATORS)
