"""The default SLOs of H-MAS Table 6, scaled by Eq. 14."""

from math import floor

import pytest

from hmas.contracts.request import Slo, TaskType
from hmas.laws.slo import (
    DEFAULT_IMPORTANCE,
    SLO_BASE_MS,
    TIGHTEST_TPOT_MS,
    default_slo,
    importance_factor,
    needed_tpot_s,
    tightest_tpot_s,
)


@pytest.mark.parametrize(
    ("importance", "factor"),
    [(0.0, 1.2), (0.5, 1.2), (0.6, 1.12), (0.75, 1.0), (0.9, 0.88), (1.0, 0.8), (2.0, 0.8)],
)
def test_the_factor_is_linear_between_half_and_full_importance(importance: float, factor: float) -> None:
    assert importance_factor(importance) == pytest.approx(factor)


@pytest.mark.parametrize("task", TaskType)
def test_the_usual_importance_gives_the_table_itself(task: TaskType) -> None:
    ttft_ms, tpot_ms = SLO_BASE_MS[task]
    assert default_slo(task) == Slo(ttft_ms / 1000, tpot_ms / 1000, None, False)
    assert default_slo(task, whole=True) == Slo(ttft_ms / 1000, tpot_ms / 1000, None, True)


def test_a_scaled_slo_is_rounded_down_to_a_millisecond() -> None:
    assert default_slo(TaskType.TRANSLATION, 0.5) == Slo(5.4, 0.096)
    assert default_slo(TaskType.DIALOGUE, 0.7) == Slo(4.16, 0.072)  # 72.8 ms
    assert default_slo(TaskType.QA, 1.0) == Slo(3.2, 0.056)


@pytest.mark.parametrize("importance", [0.5, 0.7, DEFAULT_IMPORTANCE, 1.0])
def test_the_tightest_default_is_the_least_of_all_task_types(importance: float) -> None:
    assert tightest_tpot_s(importance) == min(default_slo(task, importance).tpot_s for task in TaskType)
    assert tightest_tpot_s(importance) == floor(TIGHTEST_TPOT_MS * importance_factor(importance) + 1e-6) / 1000
    assert TIGHTEST_TPOT_MS == 70


def test_a_stated_tpot_is_the_time_that_a_token_may_take() -> None:
    assert needed_tpot_s(Slo(4.0, 0.1, 3.0), 50.0, 1.0) == 0.1


def test_one_judged_by_its_last_token_has_what_its_ttlt_leaves_after_the_first() -> None:
    assert needed_tpot_s(Slo(4.0, 0.1, 9.0, whole=True), 80.0, 1.0) == pytest.approx(0.1)
    assert needed_tpot_s(Slo(4.0, 0.1, 9.0, whole=True), 40.0, 1.0) == pytest.approx(0.2)
    assert needed_tpot_s(Slo(4.0, 0.1, None, whole=True), 40.0, 1.0) == pytest.approx((4.0 + 4.0 - 1.0) / 40)


def test_where_nothing_is_left_no_pace_keeps_it() -> None:
    assert needed_tpot_s(Slo(4.0, 0.1, 1.0, whole=True), 40.0, 1.0) == 0.0
    assert needed_tpot_s(Slo(4.0, 0.1, 1.0, whole=True), 40.0, 2.0) < 0.0
    assert needed_tpot_s(Slo(4.0, 0.1, 1.0, whole=True), 0.0, 0.5) == 0.5, "an answer has at least a token"
