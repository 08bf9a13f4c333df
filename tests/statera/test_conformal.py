import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.statera.agent.conformal import (
    AdaptiveLevel,
    ErrorBuffer,
    bucket_index,
    conformal_rank,
    survival_quantile,
)

EPSILON = 0.1


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=80), st.sampled_from([0.01, 0.05, 0.1, 0.3]))
def test_without_censoring_it_is_the_finite_sample_order_statistic(errors: list[float], epsilon: float) -> None:
    rank = min(conformal_rank(len(errors), epsilon), len(errors))
    assert survival_quantile([(e, False) for e in errors], epsilon) == sorted(errors)[rank - 1]


def test_rank_is_the_ceiling_of_n_plus_one() -> None:
    assert [conformal_rank(n, 0.1) for n in (8, 9, 10, 99)] == [9, 9, 10, 90]


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), min_size=1, max_size=60))
def test_a_censored_error_never_lowers_the_bound(observations: list[tuple[float, bool]]) -> None:
    as_events = survival_quantile([(e, False) for e, _ in observations], EPSILON)
    assert survival_quantile(observations, EPSILON) >= as_events


def test_known_survival_curve() -> None:
    # Errors 1, 2+, 3, 4: S falls to 3/4 at 1, to 3/8 at 3, to 0 at 4.
    observations = [(1.0, False), (2.0, True), (3.0, False), (4.0, False)]
    assert survival_quantile(observations, 0.7) == 3.0  # rank ceil(5 * 0.3) = 2: target S <= 0.5
    assert survival_quantile(observations, 0.3) == 4.0


def test_the_bound_of_nothing_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one"):
        survival_quantile([], 0.1)


def coverage(draw: Callable[[random.Random, int], float], *, adaptive: bool, count: int = 6000, seed: int = 7) -> float:
    """Share of the later two thirds that stayed below the bound published before each of them."""
    rng = random.Random(seed)
    level = AdaptiveLevel(EPSILON, 0.01 if adaptive else 0.0, 0.001, 0.5)
    buffer = ErrorBuffer(300, level)
    covered = judged = 0
    for i in range(count):
        error = draw(rng, i)
        if buffer.quantile is not None and i > count // 3:
            judged += 1
            covered += error <= buffer.quantile
        buffer.add(error, False)
        if i % 10 == 0 and len(buffer) >= 30:
            buffer.quantile = survival_quantile(buffer.observations(), level.epsilon)
    return covered / judged


def test_coverage_on_a_stationary_stream() -> None:
    assert coverage(lambda rng, _: rng.expovariate(0.01), adaptive=True) == pytest.approx(0.9, abs=0.015)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_coverage_on_a_stream_that_drifts_upwards(seed: int) -> None:
    """The mean rises by half of itself every 300 requests: a window alone lags behind."""

    def draw(rng: random.Random, i: int) -> float:
        return rng.gauss(0.0, 30.0) + 0.5 * i

    lagging = coverage(draw, adaptive=False, seed=seed)
    adapted = coverage(draw, adaptive=True, seed=seed)
    assert lagging < 0.6
    assert adapted > lagging + 0.25


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_coverage_returns_after_a_jump(seed: int) -> None:
    def draw(rng: random.Random, i: int) -> float:
        return rng.lognormvariate(4.0, 1.0) * (4.0 if (i // 1000) % 2 else 1.0)

    assert coverage(draw, adaptive=True, seed=seed) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_censoring_at_random_is_corrected_by_survival_weighting(seed: int) -> None:
    """Clients leave at random points: dropping them or taking their lengths as final both bound too low."""
    rng = random.Random(seed)
    truth = [rng.expovariate(1 / 200) for _ in range(1000)]
    leave = [rng.expovariate(1 / 400) for _ in range(1000)]
    seen = [(min(t, c), c < t) for t, c in zip(truth, leave, strict=True)]
    fresh = [rng.expovariate(1 / 200) for _ in range(4000)]

    def covered(bound: float) -> float:
        return sum(x <= bound for x in fresh) / len(fresh)

    assert covered(survival_quantile(seen, EPSILON)) == pytest.approx(0.9, abs=0.04)
    assert covered(survival_quantile([o for o in seen if not o[1]], EPSILON)) < 0.85
    assert covered(survival_quantile([(e, False) for e, _ in seen], EPSILON)) < 0.85


def test_running_requests_count_until_the_buffer_slides() -> None:
    buffer = ErrorBuffer(10, AdaptiveLevel(EPSILON, 0.0, 0.0, 1.0))
    for i in range(10):
        buffer.add(float(i), False)
    buffer.see_running([(500.0, True)] * 5)
    assert survival_quantile(buffer.observations(), EPSILON) == 500.0
    buffer.add(10.0, False)
    assert survival_quantile(buffer.observations(), EPSILON) == 10.0


def test_a_censored_error_below_the_bound_leaves_the_level_alone() -> None:
    level = AdaptiveLevel(EPSILON, 0.01, 0.01, 0.5)
    buffer = ErrorBuffer(10, level)
    buffer.quantile = 100.0
    buffer.add(50.0, True)
    assert level.epsilon == EPSILON
    buffer.add(150.0, True)
    assert level.epsilon == pytest.approx(EPSILON - 0.009)
    buffer.add(50.0, False)
    assert level.epsilon == pytest.approx(EPSILON - 0.008)


def test_bucket_edges_are_inclusive() -> None:
    assert [bucket_index((128, 512), n) for n in (0, 128, 129, 512, 513)] == [0, 0, 1, 1, 2]
