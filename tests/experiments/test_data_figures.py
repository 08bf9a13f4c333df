"""The pages of the paper's figures of data: a drift is told from chance, and what is missing is said."""

from pathlib import Path

import numpy as np
import pytest

from experiments.report.data_figures import (
    EDGES,
    INTERVAL_S,
    drift_of,
    intervals,
    out_of_order,
    pages_of,
    rank_correlation,
)
from experiments.report.figure2a import by_chance, explained
from hmas.contracts.request import TaskType
from hmas_loadgen.traces.row import Trace, TraceRow


def trace(tokens: list[int], each_s: float = 1.0) -> Trace:
    rows = tuple(
        TraceRow(arrival_s=i * each_s, input_tokens=number, output_tokens=1) for i, number in enumerate(tokens)
    )
    return Trace(name="made", rows=rows, note="", span_s=len(tokens) * each_s)


def test_lengths_that_change_at_half_time_drift_and_the_same_in_random_order_do_not() -> None:
    drift = drift_of(trace([100] * 1440 + [3000] * 960), INTERVAL_S)
    assert drift.dominant_moves
    assert drift.mass_moves
    assert (drift.least, drift.most, drift.mode_share) == (0.0, 1.0, 0.6)
    mostly_short = [100] * 1600 + [3000] * 800
    shuffled = np.random.default_rng(1).permutation(mostly_short).tolist()
    drift = drift_of(trace(shuffled), INTERVAL_S)
    assert not drift.dominant_moves
    assert EDGES[drift.mode] <= 100 < EDGES[drift.mode + 1]
    assert drift.swing < 0.5


def test_the_last_part_of_an_interval_is_left_out_and_an_empty_interval_has_no_dominant_bin() -> None:
    number, tokens = intervals(trace([10] * 250), INTERVAL_S)
    assert (len(number), set(tokens.tolist())) == (240, {10})
    rows = tuple(row for row in trace([3000] * 480).rows if not 120 <= row.arrival_s < 240)
    drift = drift_of(Trace(name="gap", rows=rows, note="", span_s=480.0), INTERVAL_S)
    assert (drift.mode_share, EDGES[drift.mode]) == (1.0, 2048)


def test_equal_values_share_their_rank() -> None:
    assert rank_correlation([1, 2, 2, 3], [10, 20, 20, 30]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)


def test_the_type_with_a_lax_slo_and_short_answers_is_named() -> None:
    assert set(out_of_order()) == {TaskType.SUMMARIZATION}


@pytest.mark.long
def test_the_pages_tell_of_what_is_generated_where_no_trace_is_there(tmp_path: Path) -> None:
    two, eleven, thirteen = pages_of(None, (1,), tmp_path).values()
    assert "not measured" in two
    text = eleven
    assert text.count("not measured (the trace is not there)") == 3
    assert "| azure-like, generated, seed 1 | 1" in text
    assert "SLOs of the task types" in thirteen
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {"figure11.svg", "figure13.svg"}


def test_lengths_of_types_are_compared_with_types_dealt_at_random() -> None:
    rng = np.random.default_rng(1)
    apart = [rng.normal(mean, 1.0, 200) for mean in (0.0, 1.0, 2.0)]
    alike = [rng.normal(0.0, 1.0, 200) for _ in range(3)]
    assert explained(apart) > 0.3 > by_chance(apart)
    assert explained(alike) < 0.03
    assert explained([np.ones(3), np.ones(4)]) == 0.0
