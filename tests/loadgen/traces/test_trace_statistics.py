"""A trace in numbers, on one small enough to count by hand."""

import pytest

from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.traces.statistics import statistics


def test_rates_lengths_and_sharing() -> None:
    rows = (
        TraceRow(arrival_s=0.0, input_tokens=100, output_tokens=10, hash_ids=(1, 2)),
        TraceRow(arrival_s=0.5, input_tokens=600, output_tokens=10, hash_ids=(1, 3)),
        TraceRow(arrival_s=0.9, input_tokens=3000, output_tokens=10, hash_ids=(4,)),
        TraceRow(arrival_s=9.0, input_tokens=5000, output_tokens=50, hash_ids=(1, 2, 3)),
    )
    found = statistics(Trace(name="t", rows=rows, span_s=10.0))
    assert (found.requests, found.mean_rps, found.peak_rps, found.step_rps) == (4, 0.4, 3, 3)
    assert found.burst_requests == pytest.approx(3 - 5 * 0.4)
    assert (found.short_share, found.long_share) == (0.25, 0.5)
    assert found.long_share_swing == 0.0  # all in one minute
    assert found.shared_prefix_share == pytest.approx(4 / 8)
