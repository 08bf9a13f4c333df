import random

import pytest

from hmas.statera.agent.config import SeekerConfig
from hmas.statera.agent.extremum import ExtremumSeeker

CONFIG = SeekerConfig(enabled=True, start=0.95, lowest=0.75, dither=0.02, settle_s=2.0, measure_s=3.0, gain=1.0)


def run(seeker: ExtremumSeeker, peak: float, rounds: int, noise: float = 0.0, slope: float = 0.0) -> None:
    """Goodput falls off quadratically from `peak`; `slope` is a drift of the load per second."""
    rng = random.Random(5)
    for i in range(int(rounds * 20.0 / 0.25)):
        now_s = i * 0.25
        high = seeker.band().high
        goodput = 1000.0 * (1.0 - 20.0 * (high - peak) ** 2) + slope * now_s + rng.gauss(0.0, noise)
        seeker.observe(now_s, goodput)


@pytest.mark.parametrize("peak", [0.80, 0.87])
def test_finds_the_peak(peak: float) -> None:
    seeker = ExtremumSeeker(CONFIG)
    run(seeker, peak, 60, noise=5.0)
    assert seeker.centre == pytest.approx(peak, abs=0.04)


def test_a_linear_drift_of_the_load_does_not_mislead_it() -> None:
    seeker = ExtremumSeeker(CONFIG)
    run(seeker, 0.95, 20, slope=2.0)
    assert seeker.centre == pytest.approx(0.95, abs=0.02)


def test_noise_alone_moves_nothing() -> None:
    seeker = ExtremumSeeker(SeekerConfig(enabled=True, start=0.95, settle_s=2.0, measure_s=3.0))
    rng = random.Random(1)
    for i in range(8000):
        seeker.observe(i * 0.25, 1000.0 + rng.gauss(0.0, 20.0))
    assert seeker.centre == 0.95


def test_stays_inside_its_limits() -> None:
    seeker = ExtremumSeeker(CONFIG)
    for i in range(20000):
        seeker.observe(i * 0.25, 1000.0 * seeker.band().high ** 8)
        assert CONFIG.lowest <= seeker.band().high <= CONFIG.highest
        assert seeker.band().low == pytest.approx(seeker.band().high - CONFIG.width)
    assert seeker.centre == CONFIG.highest - CONFIG.dither


def test_at_rest_there_is_no_dither_and_an_open_round_is_lost() -> None:
    seeker = ExtremumSeeker(CONFIG)
    assert seeker.band().high == 0.95
    seeker.observe(0.0, 100.0)
    assert seeker.band().high == pytest.approx(0.97)
    seeker.rest()
    assert seeker.band().high == 0.95


def test_disabled() -> None:
    seeker = ExtremumSeeker(SeekerConfig(start=0.95, enabled=False))
    assert not any(seeker.observe(i * 1.0, float(i)) for i in range(1000))
    assert seeker.band().high == 0.95
