"""The three slices differ in what they should, and in nothing else."""

from collections import Counter

import numpy as np
import pytest

from hmas_loadgen.slo import TASKS
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.workloads.published import published_trace
from hmas_loadgen.workloads.slices import (
    LONG_TASKS,
    SHORT_TASKS,
    burst_slice,
    drift_slice,
    semantic_drift,
    shift_slice,
    stress_slice,
)


def counts(trace: Trace) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.bincount([int(row.arrival_s) for row in trace.rows], minlength=int(trace.duration_s))


def long_share(trace: Trace, start_s: float, end_s: float) -> float:
    tasks = [row.task in LONG_TASKS for row in trace.rows if start_s <= row.arrival_s < end_s]
    return sum(tasks) / len(tasks)


def test_burst_keeps_the_mean_and_repeats() -> None:
    trace = burst_slice(20.0, 600.0, 1)
    per_second = counts(trace)
    assert per_second.mean() == pytest.approx(20.0, rel=0.03)
    inside = per_second[np.arange(600) % 30 < 4]
    assert inside.mean() == pytest.approx(80.0, rel=0.05)
    assert long_share(trace, 0, 300) == pytest.approx(long_share(trace, 300, 600), abs=0.04)


def test_drift_changes_tokens_and_tasks_not_the_rate() -> None:
    trace = drift_slice(20.0, 600.0, 1)
    per_second = counts(trace)
    assert per_second[:200].mean() == pytest.approx(per_second[400:].mean(), rel=0.1)
    tokens = [[r.input_tokens for r in trace.rows if a <= r.arrival_s < a + 200] for a in (0, 400)]
    assert np.mean(tokens[1]) / np.mean(tokens[0]) == pytest.approx((1 + 4 / 15) / (1 - 4 / 15), rel=0.1)
    assert long_share(trace, 0, 150) < 0.25 < 0.4 < long_share(trace, 450, 600)


def test_shift_has_three_lasting_regimes() -> None:
    trace = shift_slice(20.0, 600.0, 1)
    per_second = counts(trace)
    means = [per_second[a : a + 200].mean() for a in (0, 200, 400)]
    assert means == pytest.approx([14.0, 28.0, 18.0], rel=0.08)
    shares = [long_share(trace, a, a + 200) for a in (0, 200, 400)]
    assert shares == pytest.approx([0.2, 0.5, 0.8], abs=0.04)


def test_stress_has_tasks_and_600_s() -> None:
    trace = stress_slice(10.0, 2)
    assert trace.duration_s == 600.0
    assert all(row.task in TASKS for row in trace.rows)


def test_semantic_drift_keeps_arrivals_and_changes_regime_every_200_s() -> None:
    arrivals = published_trace(20.0, 600.0, 1)
    trace = semantic_drift(arrivals, 1)
    assert [row.arrival_s for row in trace.rows] == [row.arrival_s for row in arrivals.rows]
    regimes = [{row.task for row in trace.rows if a <= row.arrival_s < a + 200} for a in (0, 200, 400)]
    assert regimes == [set(SHORT_TASKS), set(LONG_TASKS), set(TASKS)]
    spread = Counter(row.task for row in trace.rows if row.arrival_s >= 400)
    assert max(spread.values()) < 2 * min(spread.values())
