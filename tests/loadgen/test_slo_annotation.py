"""App. E.5: task types, importance, Eq. 14."""

import numpy as np
import pytest

from hmas.contracts.request import Slo, TaskType
from hmas.laws.slo import SLO_BASE_MS, default_slo
from hmas_loadgen.slo import TASK_LENGTHS, TASKS, annotate, assign_tasks, assign_tenants, task_odds
from hmas_loadgen.traces.row import Trace, TraceRow

PLAIN = Trace(
    name="t", rows=tuple(TraceRow(arrival_s=float(i), input_tokens=100, output_tokens=1 + i % 900) for i in range(3000))
)


def test_importance_is_uniform_and_the_slo_is_eq_14() -> None:
    rows = annotate(PLAIN, 3).rows
    importance = np.array([row.importance for row in rows])
    assert importance.min() >= 0.5
    assert importance.max() <= 1.0
    assert importance.mean() == pytest.approx(0.75, abs=0.01)
    assert importance.std() == pytest.approx(0.5 / 12**0.5, abs=0.01)
    for row in rows[:200]:
        assert row.task is not None
        assert row.importance is not None
        assert row.slo == default_slo(row.task, row.importance)
        base_ms, _ = SLO_BASE_MS[row.task]
        factor = row.slo.ttft_s * 1000 / base_ms
        assert 0.8 - 1e-3 <= factor <= 1.2 + 1e-3
        assert row.slo.ttft_s * 1000 == pytest.approx(round(row.slo.ttft_s * 1000))  # a floor: whole milliseconds


def test_what_a_row_states_already_stays() -> None:
    own = TraceRow(arrival_s=0.0, input_tokens=1, output_tokens=1, task=TaskType.QA, slo=Slo(1.0, 0.05), importance=0.5)
    partly = TraceRow(arrival_s=1.0, input_tokens=1, output_tokens=1, task=TaskType.QA, importance=1.0)
    first, second = annotate(Trace(name="t", rows=(own, partly)), 1).rows
    assert first == own
    assert second.slo == default_slo(TaskType.QA, 1.0)


def test_lengths_decide_tasks_but_exclude_none() -> None:
    assert all(task_odds(n).min() > 0.008 for n in (1, 30, 1000, 100_000))
    assert TASKS[int(task_odds(1500).argmax())] is TaskType.LONG_FORM_GENERATION
    assert set(TASK_LENGTHS) == set(TASKS)
    tasks = {row.task for row in assign_tasks(PLAIN, 1).rows}
    assert tasks == set(TASKS)


def test_same_seed_same_annotation() -> None:
    assert annotate(PLAIN, 1) == annotate(PLAIN, 1)
    assert annotate(PLAIN, 1) != annotate(PLAIN, 2)


def test_tenants_by_share() -> None:
    rows = assign_tenants(PLAIN, {"a": 3.0, "b": 1.0}, 1).rows
    assert sum(row.tenant == "a" for row in rows) / len(rows) == pytest.approx(0.75, abs=0.03)
    with pytest.raises(ValueError, match="shares of tenants must be above 0"):
        assign_tenants(PLAIN, {"a": 0.0}, 1)
