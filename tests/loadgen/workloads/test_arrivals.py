"""Arrival processes: means, variation, and the phases of Eq. 13."""

import numpy as np
import pytest

from hmas_loadgen.workloads.arrivals import gamma, inhomogeneous, poisson, stress_rate, stress_test


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_has_the_rate_and_the_variation(cv: float) -> None:
    instants = gamma(20.0, cv, 5000.0, rng())
    gaps = np.diff(instants)
    assert instants.size == pytest.approx(100_000, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)
    assert (gaps >= 0).all()
    assert instants[-1] < 5000.0


def test_poisson_counts_have_equal_mean_and_variance() -> None:
    counts = np.bincount(poisson(10.0, 10_000.0, rng()).astype(int))
    assert counts.mean() == pytest.approx(10.0, rel=0.02)
    assert counts.var() == pytest.approx(10.0, rel=0.05)


def test_a_short_horizon_may_be_empty_and_bad_arguments_are_refused() -> None:
    assert poisson(0.001, 1.0, rng()).size == 0
    for rate, cv, duration in ((0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match="must all be above 0"):
            gamma(rate, cv, duration, rng())


def test_thinning_follows_the_rate() -> None:
    instants = inhomogeneous(lambda t: np.where(t < 500, 5.0, 15.0), 15.0, 1000.0, rng())
    assert (instants < 500).sum() == pytest.approx(2500, rel=0.06)
    assert (instants >= 500).sum() == pytest.approx(7500, rel=0.04)


def test_stress_rate_is_eq_13_at_its_edges() -> None:
    at = np.array([0.0, 199.9, 200.0, 399.9, 400.0, 409.9, 410.0, 419.9, 420.0])
    assert stress_rate(40.0)(at) == pytest.approx([24, 24, 56, 56, 72, 72, 8, 8, 72])


def test_stress_test_phases() -> None:
    instants = stress_test(40.0, rng())
    phases = [((instants >= a) & (instants < a + 200)).sum() / 200 for a in (0, 200, 400)]
    assert phases == pytest.approx([24.0, 56.0, 40.0], rel=0.05)


def test_same_seed_same_arrivals() -> None:
    assert (stress_test(5.0, rng(3)) == stress_test(5.0, rng(3))).all()
