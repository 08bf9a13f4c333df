"""A trace in numbers, on one small enough to count by hand."""

import pytest

from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.traces.statistics import statistics


def test_rates_lengths_and_sharing() -> None:
    rows = (
        TraceRow(0.0, 100, 10, (1, 2)),
        TraceRow(0.5, 600, 10, (1, 3)),
        TraceRow(0.9, 3000, 10, (4,)),
        TraceRow(9.0, 5000, 50, (1, 2, 3)),
    )
    found = statistics(Trace("t", rows, span_s=10.0))
    assert (found.requests, found.mean_rps, found.peak_rps, found.step_rps) == (4, 0.4, 3, 3)
    assert found.burst_requests == pytest.approx(3 - 5 * 0.4)
    assert (found.short_share, found.long_share) == (0.25, 0.5)
    assert found.long_share_swing == 0.0  # all in one minute
    assert found.shared_prefix_share == pytest.approx(4 / 8)
