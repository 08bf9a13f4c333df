from random import Random

import pytest

from hmas.prediction.agent.measured_line import MeasuredLine


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
