"""The trace made of published numbers has those numbers (H-MAS §2)."""

import numpy as np
import pytest

from hmas_loadgen.traces.statistics import statistics
from hmas_loadgen.workloads.published import MEAN_RPS, PEAK_RPS, burst_intensity, published_trace


def test_at_the_published_rate_it_has_the_published_statistics() -> None:
    found = [statistics(published_trace(MEAN_RPS, 1200.0, seed)) for seed in range(3)]

    def mean(name: str) -> float:
        return float(np.mean([getattr(each, name) for each in found]))

    assert mean("mean_rps") == pytest.approx(45.15, rel=0.02)
    assert mean("peak_rps") == pytest.approx(176, rel=0.1)
    assert mean("step_rps") == pytest.approx(140, rel=0.15)
    assert mean("burst_requests") == pytest.approx(167, rel=0.25)
    assert mean("input_p95") == pytest.approx(5894, rel=0.05)
    assert 0.203 <= mean("short_share") <= 0.262
    assert mean("output_p50") == pytest.approx(115, rel=0.03)
    assert mean("output_p99") == pytest.approx(598, rel=0.03)


def test_the_long_share_drifts_within_five_minutes() -> None:
    assert statistics(published_trace(MEAN_RPS, 300.0, 1)).long_share_swing == pytest.approx(0.1565, abs=0.06)


def test_very_long_contexts_stay_below_their_published_peak() -> None:
    inputs = np.array([row.input_tokens for row in published_trace(MEAN_RPS, 1200.0, 2).rows])
    assert 0.06 < (inputs > 4096).mean() < 0.092
    assert 0.223 <= ((inputs > 2048) & (inputs <= 4096)).mean() <= 0.243


@pytest.mark.parametrize("duration_s", [1.0, 7.5, 60.0])
def test_short_and_slow_traces_scale(duration_s: float) -> None:
    rows = [len(published_trace(4.0, duration_s, seed).rows) for seed in range(40)]
    assert np.mean(rows) == pytest.approx(4.0 * duration_s, rel=0.25)
    intensity = burst_intensity(duration_s, np.random.default_rng(1))
    assert intensity.max() <= PEAK_RPS / MEAN_RPS + 1e-9


def test_same_seed_same_trace() -> None:
    assert published_trace(5.0, 60.0, 7) == published_trace(5.0, 60.0, 7)
    assert published_trace(5.0, 60.0, 7) != published_trace(5.0, 60.0, 8)
