"""The variation of arriving work, against what it must be for even, uneven and unknown arrivals."""

from random import Random
from statistics import fmean, pstdev

import pytest

from hmas.worker.agent.order.surges import Surges, SurgesConfig


def seen(per_second: list[float], config: SurgesConfig | None = None) -> Surges:
    surges = Surges(config or SurgesConfig())
    for second, work in enumerate(per_second):
        surges.add(float(second), work)
    surges.observe(float(len(per_second)))
    return surges


def test_even_arrivals_do_not_vary() -> None:
    assert seen([3.0] * 200).variation == pytest.approx(0.0, abs=1e-6)
    assert seen([3.0] * 200).calm == pytest.approx(1.0)


def test_the_unit_of_work_does_not_matter() -> None:
    work = [1.0, 5.0, 0.0, 2.0] * 50
    assert seen(work).variation == pytest.approx(seen([1000.0 * w for w in work]).variation)


def test_rare_surges_vary_more_than_noise_within_a_surge() -> None:
    """The same work: every second by turns, or all of twenty seconds at once."""
    by_turns, at_once = seen([2.0, 0.0] * 100), seen(([20.0] + [0.0] * 19) * 10)
    assert by_turns.variation < 0.2
    assert at_once.variation > SurgesConfig().wild
    assert at_once.calm == SurgesConfig().least
    assert by_turns.calm > at_once.calm


def test_what_is_not_known_yet_counts_as_wild() -> None:
    assert seen([]).calm == SurgesConfig().least
    assert seen([3.0] * 5).calm == SurgesConfig().least


def test_a_long_pause_is_forgotten_at_once() -> None:
    """Without that, one sample a second would be made up for every second of it."""
    surges = seen([3.0] * 200)
    surges.add(1e9, 1.0)
    assert surges.variation == SurgesConfig().wild
    assert surges.calm == SurgesConfig().least


@pytest.mark.parametrize("seed", range(3))
def test_samples_that_are_surges_by_themselves_vary_by_their_deviation_over_their_mean(seed: int) -> None:
    """With a surge as short as a sample, and a memory without end."""
    rng = Random(seed)
    work = [rng.choice((0.0, 1.0, 7.0)) for _ in range(40)]
    config = SurgesConfig(surge_s=1.0, memory_s=1e12, trusted=30)
    assert seen(work, config).variation == pytest.approx(pstdev(work) / fmean(work))
    assert seen(work[:30], config).variation == pytest.approx(pstdev(work[:30]) / fmean(work[:30]))
    assert seen(work[:29], config).variation == config.wild
    assert seen([0.0] * 40, config).variation == config.wild, "of no work nothing is known"


def test_slack_is_kept_in_proportion_between_tame_and_wild() -> None:
    halves = {1.0: 0.0, 3.0: 0.5, 2.0: 1.0 / 3.0, 1.5: 0.2}  # a sample of 1, then one of so much: their variation
    for work, variation in halves.items():
        config = SurgesConfig(surge_s=1.0, memory_s=1e12, trusted=1, tame=0.25, wild=0.45, least=0.06)
        surges = seen([1.0, work] * 20, config)
        assert surges.variation == pytest.approx(variation, abs=1e-6)
        assert surges.calm == pytest.approx({0.0: 1.0, 0.2: 1.0, 0.5: 0.06}.get(variation, (0.45 - 1.0 / 3.0) / 0.2))


def test_a_pause_of_its_time_begins_the_statistics_anew_with_what_comes_then() -> None:
    config = SurgesConfig(surge_s=1.0, memory_s=1e12, trusted=1, forgotten_s=600.0)
    for pause_s, variation in ((599.0, None), (600.0, 0.0)):
        surges = seen([2.0, 4.0] * 20, config)
        for second in range(4):
            surges.add(40.0 + pause_s + second, 5.0)
        surges.observe(40.0 + pause_s + 4.0)
        assert (surges.variation == 0.0) is (variation is not None)
