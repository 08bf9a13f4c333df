"""The variation of arriving work, against what it must be for even, uneven and unknown arrivals."""

import pytest

from hmas.worker.agent.surges import Surges, SurgesConfig


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
