"""What window, compression and multiplication do to a trace."""

import pytest

from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.workloads.scaling import compress, multiply, to_rate, window

TRACE = Trace(
    name="t",
    rows=tuple(TraceRow(arrival_s=i / 10, input_tokens=i + 1, output_tokens=1) for i in range(1000)),
    span_s=100.0,
)


def test_window_moves_to_zero_and_keeps_its_span() -> None:
    part = window(TRACE, 30.0, 20.0)
    assert len(part.rows) == 200
    assert part.rows[0] == TraceRow(arrival_s=0.0, input_tokens=301, output_tokens=1)
    assert part.duration_s == 20.0
    assert window(TRACE, 90.0, 60.0).duration_s == pytest.approx(10.0)
    with pytest.raises(ValueError, match=r"no request of t arrives in \[500, 600\) s of its 100 s"):
        window(TRACE, 500.0, 100.0)


def test_compression_keeps_every_request() -> None:
    fast = compress(TRACE, 4.0)
    assert [row.input_tokens for row in fast.rows] == [row.input_tokens for row in TRACE.rows]
    assert fast.duration_s == 25.0
    assert "time compressed 4 times" in fast.note
    with pytest.raises(ValueError, match="must be above 0"):
        compress(TRACE, 0.0)


def test_thinning_keeps_a_share_in_place() -> None:
    thin = multiply(TRACE, 0.3, 1)
    assert len(thin.rows) == pytest.approx(300, rel=0.15)
    assert set(thin.rows) <= set(TRACE.rows)
    assert thin.duration_s == 100.0


@pytest.mark.parametrize("factor", [1.0, 2.0, 3.4])
def test_superposition_keeps_the_span_and_the_original(factor: float) -> None:
    more = multiply(TRACE, factor, 1)
    assert len(more.rows) == pytest.approx(1000 * factor, rel=0.1)
    assert set(TRACE.rows) <= set(more.rows)
    assert all(0 <= row.arrival_s <= 100 for row in more.rows)
    assert [r.arrival_s for r in more.rows] == sorted(r.arrival_s for r in more.rows)


def test_to_rate_by_either_way() -> None:
    assert len(to_rate(TRACE, 25.0, 1).rows) / 100 == pytest.approx(25.0, rel=0.1)
    squeezed = to_rate(TRACE, 25.0, 1, by_time=True)
    assert len(squeezed.rows) / squeezed.duration_s == pytest.approx(25.0)
    with pytest.raises(ValueError, match="arrive at once"):
        to_rate(Trace(name="t", rows=(TraceRow(arrival_s=0.0, input_tokens=1, output_tokens=1),)), 5.0, 1)


def test_at_least_one_request_is_left() -> None:
    assert multiply(TRACE, 1e-9, 1).rows == TRACE.rows[:1]
    with pytest.raises(ValueError, match="must be above 0"):
        multiply(TRACE, 0.0, 1)
