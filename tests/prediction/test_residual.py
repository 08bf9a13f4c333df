import random

import pytest

from hmas.prediction.agent.residual import ResidualScale


@pytest.mark.parametrize("truth", [0.1, 0.5, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_converges_within_200_requests(truth: float, seed: int) -> None:
    rng, scale = random.Random(seed), ResidualScale()
    for _ in range(200):
        scale.update(truth * 0.05 * rng.lognormvariate(0.0, 0.3), 0.05)
    assert scale.factor == pytest.approx(truth, rel=0.1)


def test_follows_a_change_within_200_requests() -> None:
    rng, scale = random.Random(3), ResidualScale()
    for _ in range(2000):
        scale.update(rng.lognormvariate(0.0, 0.2), 1.0)
    for _ in range(200):
        scale.update(3.0 * rng.lognormvariate(0.0, 0.2), 1.0)
    assert scale.factor == pytest.approx(3.0, rel=0.15)


def test_outliers_hardly_move_it() -> None:
    rng, scale = random.Random(4), ResidualScale()
    for i in range(1000):
        scale.update(200.0 if i % 20 == 0 else rng.lognormvariate(0.0, 0.2), 1.0)
    assert scale.factor == pytest.approx(1.0, rel=0.2)


@pytest.mark.parametrize(("observed", "predicted"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (float("nan"), 1.0)])
def test_nonsense_is_ignored(observed: float, predicted: float) -> None:
    scale = ResidualScale()
    scale.update(observed, predicted)
    assert scale.factor == 1.0


def test_the_factor_is_bounded() -> None:
    scale = ResidualScale(limit=100.0)
    for _ in range(5000):
        scale.update(1e12, 1.0)
    assert scale.factor == pytest.approx(100.0)
