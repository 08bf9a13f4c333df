from math import exp, log, nan
from random import Random

import pytest

from hmas.prediction.agent.measured_line import MeasuredLine
from hmas.prediction.agent.residual import ResidualScale


def over_prompts(known_after: int = 8, memory: float = 200.0) -> MeasuredLine:
    return MeasuredLine(scale=256.0, origin=0.02, known_after=known_after, memory=memory)


def test_it_finds_base_and_slope_in_noise() -> None:
    rng, line = Random(1), over_prompts()
    for _ in range(400):
        tokens = rng.randint(20, 4000)
        line.observe(tokens, (0.02 + 1e-4 * tokens) * rng.lognormvariate(0.0, 0.2))
    for tokens in (100, 1000, 3500):
        assert line.seconds(tokens) == pytest.approx(0.02 + 1e-4 * tokens, rel=0.15)


def test_it_follows_an_engine_that_gets_slower() -> None:
    rng, line = Random(1), over_prompts(memory=100.0)
    for factor in (1.0, 3.0):
        for _ in range(500):
            tokens = rng.randint(20, 4000)
            line.observe(tokens, factor * (0.02 + 1e-4 * tokens))
    assert line.seconds(2000) == pytest.approx(3.0 * 0.22, rel=0.05)


def test_prompts_of_one_length_say_that_longer_ones_take_longer() -> None:
    line = over_prompts(known_after=3)
    for _ in range(3):
        assert not line.known
        line.observe(1000, 0.1)
    assert line.known
    assert line.seconds(1000) == pytest.approx(0.1, rel=0.05)
    assert line.seconds(2000) > 0.15


def test_one_batch_size_says_nothing_of_others() -> None:
    line = MeasuredLine(scale=64.0, flat=16.0)
    for _ in range(10):
        line.observe(1, 0.03)
    assert line.seconds(30) == pytest.approx(0.03)


def test_neither_number_is_negative() -> None:
    falling, steep = over_prompts(), over_prompts()
    for n in range(1, 50):
        falling.observe(100 * n, 1.0 / n)
        steep.observe(100 * n, 1e-6 * n**3)
    assert falling.seconds(1) == pytest.approx(falling.seconds(5000))
    assert falling.seconds(1) > 0.0
    assert 0.0 <= steep.seconds(1) < steep.seconds(5000)


def test_a_stall_moves_it_little_and_nonsense_not_at_all() -> None:
    rng, line = Random(1), over_prompts()
    for _ in range(200):
        tokens = rng.randint(20, 4000)
        line.observe(tokens, 0.02 + 1e-4 * tokens)
    before = line.seconds(1000)
    line.observe(1000, 60.0)
    assert line.seconds(1000) < 1.1 * before
    after = line.seconds(1000)
    for tokens, seconds in ((0, 1.0), (1000, 0.0), (1000, float("nan"))):
        line.observe(tokens, seconds)
    assert line.seconds(1000) == after


def least_squares(
    rows: list[tuple[float, float]], scale: float, origin: float, flat: float, memory: float
) -> tuple[float, float]:
    """Base and slope of the weighted least squares, an artificial observation of 0 s at 0 and a ridge included."""
    weights = [(1.0 - 1.0 / memory) ** age * scale / (scale + x) for age, (x, _) in enumerate(reversed(rows))][::-1]
    w, x1, y1, xx, xy = origin, 0.0, 0.0, flat, 0.0
    for weight, (x, y) in zip(weights, rows, strict=True):
        w, x1, y1, xx, xy = w + weight, x1 + weight * x, y1 + weight * y, xx + weight * x * x, xy + weight * x * y
    slope = (w * xy - x1 * y1) / (w * xx - x1 * x1)
    base = (y1 - slope * x1) / w
    if slope < 0.0:
        return y1 / w, 0.0
    return (0.0, xy / (xx - flat)) if base < 0.0 else (base, slope)


@pytest.mark.parametrize(("base", "slope"), [(0.05, 1e-3), (0.05, 0.0), (0.0, 1e-3), (1.0, -5e-4), (-0.1, 1e-3)])
@pytest.mark.parametrize(("origin", "flat"), [(1e-3, 0.0), (0.3, 0.0), (0.0, 2e4)])
def test_a_line_is_the_weighted_least_squares_of_what_was_seen(
    base: float, slope: float, origin: float, flat: float
) -> None:
    rng = Random(3)
    line = MeasuredLine(100.0, origin, flat, known_after=99, memory=12.0)
    rows = [(x, max(1e-6, base + slope * x) * rng.uniform(0.9, 1.1)) for x in (rng.uniform(5, 900) for _ in range(40))]
    for count, row in enumerate(rows, 1):
        line.observe(*row)
        if count > 2:
            found = least_squares(rows[:count], 100.0, origin, flat, 12.0)
            assert (line.seconds(0.0), line.seconds(100.0) - line.seconds(0.0)) == pytest.approx(
                (found[0], 100.0 * found[1]), rel=1e-6, abs=1e-9
            )


def test_a_line_is_known_after_enough_observations_and_cuts_what_stalls_from_then_on() -> None:
    line = MeasuredLine(100.0, 0.02, known_after=3, clip=2.0)
    twin = MeasuredLine(100.0, 0.02, known_after=99)
    for x, seconds in ((10.0, 0.1), (20.0, 9.0), (30.0, 0.3)):
        assert not line.known
        line.observe(x, seconds)
        twin.observe(x, seconds)
    assert line.known
    assert line.seconds(50.0) == twin.seconds(50.0)
    most = 2.0 * line.seconds(40.0)
    line.observe(40.0, 1000.0)
    twin.observe(40.0, most)
    assert line.seconds(50.0) == twin.seconds(50.0)
    line.observe(40.0, 1e-3)
    twin.observe(40.0, 1e-3)  # a short time is not cut
    assert line.seconds(50.0) == twin.seconds(50.0)


@pytest.mark.parametrize(("x", "seconds"), [(0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, -1.0), (nan, 1.0), (1.0, nan)])
def test_what_is_not_positive_is_no_observation(x: float, seconds: float) -> None:
    line = MeasuredLine(100.0, 0.02, known_after=1)
    line.observe(x, seconds)
    assert not line.known
    line.observe(1e-9, 1e-9)
    assert line.known


def test_a_factor_is_the_exponential_of_a_running_mean_whose_gain_falls_to_its_floor() -> None:
    scale, mean, spread = ResidualScale(floor=0.25, clip=2.0, limit=50.0), 0.0, 0.7
    for count, observed in enumerate((2.0, 1.0, 30.0, 0.5, 3.0, 3.0, 0.01, 8.0), 1):
        scale.update(observed, 0.5)
        cut = max(-2.0 * spread, min(2.0 * spread, log(observed / 0.5) - mean))
        mean += max(0.25, 1.0 / count) * cut
        spread += 0.05 * (abs(cut) - spread)
        assert scale.factor == pytest.approx(exp(mean))


@pytest.mark.parametrize(("observed", "limit"), [(1e9, 7.0), (1e-9, 1 / 7.0)])
def test_a_factor_keeps_its_limits(observed: float, limit: float) -> None:
    scale = ResidualScale(limit=7.0)
    for _ in range(50):
        scale.update(observed, 1.0)
    assert scale.factor == pytest.approx(limit)


@pytest.mark.parametrize(("observed", "predicted"), [(0.0, 1.0), (1.0, 0.0), (-1.0, -1.0), (nan, 1.0), (1.0, nan)])
def test_times_of_nothing_are_no_observation(observed: float, predicted: float) -> None:
    scale, twin = ResidualScale(), ResidualScale()
    scale.update(observed, predicted)
    scale.update(4.0, 2.0)
    twin.update(4.0, 2.0)
    assert scale.factor == twin.factor == pytest.approx(2.0)
