from dataclasses import replace

import numpy as np
import pytest

from hmas.contracts.request import TaskType
from hmas.perception.backends.model import ModelBackend
from hmas_lab.perception.evaluation import (
    calibration_error,
    contested_by_source,
    evaluate_length,
    evaluate_task,
    evaluate_tools,
    length_figures,
    linear_mae,
    rules_by_source,
    shares,
    slo_errors,
    view,
)
from hmas_lab.perception.training.corpus import CorpusAnswer, Prompt


def prompt(text: str, task: TaskType | None, *tokens: int) -> Prompt:
    return Prompt(
        group=text,
        text=text,
        tokens=len(text) // 4,
        task=task,
        source="s",
        answers=tuple(CorpusAnswer("gpt", n) for n in tokens),
    )


def test_calibration_error_of_honest_and_of_boastful_confidence() -> None:
    right = np.array([True] * 8 + [False] * 2)
    assert calibration_error(np.full(10, 0.8), right) == pytest.approx(0.0)
    assert calibration_error(np.full(10, 1.0), right) == pytest.approx(0.2)


def test_slo_errors_are_zero_where_the_type_is_right() -> None:
    assert slo_errors([TaskType.QA], [TaskType.QA], 0) == (0.0, 0.0)
    ttft, tpot = slo_errors([TaskType.QA] * 2000, [TaskType.MATH_REASONING] * 2000, 0)
    assert ttft == pytest.approx(6000, rel=0.02)  # the mean factor of Eq. 14 over [0.5, 1] is 1
    assert tpot == pytest.approx(60, rel=0.02)


def test_length_figures_of_known_errors() -> None:
    truth = np.array([10.0, 20.0, 40.0, 80.0])
    figures = length_figures(truth + 10, np.array([20.0, 20.0, 20.0, 100.0]), truth)
    assert (figures.answers, figures.mae, figures.coverage, figures.kendall_tau) == (4, 10.0, 0.75, 1.0)
    assert figures.mape == pytest.approx((1 + 0.5 + 0.25 + 0.125) / 4)
    assert figures.pinball_50 == 5.0


def test_the_log_error_is_told_by_length() -> None:
    truth = np.expm1(np.linspace(2.0, 6.0, 100))
    figures = length_figures(np.expm1(np.linspace(2.5, 5.5, 100)), np.full(100, 1e3), truth)
    assert figures.log_sd == pytest.approx(np.std(np.linspace(0.5, -0.5, 100)))
    assert len(figures.log_by_predicted) == len(figures.coverage_by_predicted) == 5
    assert figures.log_by_predicted[0] == pytest.approx(0.4, abs=0.01)
    assert figures.log_by_true[-1] == pytest.approx(-0.45, abs=0.01)
    assert figures.coverage_by_predicted == (1.0,) * 5


def test_tool_calls_are_scored_by_rank_and_need_both_kinds() -> None:
    backend = ModelBackend()
    rows = [
        replace(prompt(text, None), calls_tool=calls)
        for text, calls in (("Cancel my reservation, please.", True), ("Thank you, that will be all.", False))
    ]
    figures = evaluate_tools(backend, rows)
    assert (figures.turns, figures.common) == (2, 0.5)
    assert figures.auc in (0.0, 1.0)
    first, second = backend.predict([view(row) for row in rows]).tools
    assert figures.auc == float(first > second)
    with pytest.raises(ValueError, match="give both"):
        evaluate_tools(backend, rows[:1])


def test_linear_baseline_is_exact_on_a_line() -> None:
    rows = [prompt("x" * (4 * n), None, 3 * n + 7) for n in range(1, 30)]
    assert linear_mae(rows, rows) == pytest.approx(0.0, abs=1e-6)


def test_shares_count_hits_per_key() -> None:
    assert shares(["a", "b", "a"], np.array([True, False, False])) == {"a": (2, 0.5), "b": (1, 0.0)}


def test_a_label_is_contested_where_the_prompt_names_another_type() -> None:
    texts = ("Summarize this text.", "why is the sky blue", "Translate this.")
    rows = [
        Prompt(group=text, text=text, tokens=5, task=TaskType.SUMMARIZATION, source="s", answers=()) for text in texts
    ]
    assert contested_by_source(rows) == {"s": pytest.approx(1 / 3)}


def test_rules_are_scored_on_typed_prompts_only() -> None:
    rows = [prompt("Translate this to French: hello", TaskType.TRANSLATION), prompt("anything", None)]
    assert rules_by_source(rows) == {"s": (1, 1.0)}


def test_the_model_is_scored_and_untyped_data_refused() -> None:
    backend = ModelBackend()
    rows = [prompt("Translate this to French: good morning", TaskType.TRANSLATION, 5, 6), prompt("why?", None)]
    figures = evaluate_task(backend, rows)
    assert (figures.prompts, figures.accuracy) == (1, 1.0)
    assert evaluate_length(backend, rows, model_known=True).answers == 2
    with pytest.raises(ValueError, match="no prompt of these files has a task type"):
        evaluate_task(backend, rows[1:])
    with pytest.raises(ValueError, match="no prompt of these files has an answer"):
        evaluate_length(backend, rows[1:], model_known=False)
