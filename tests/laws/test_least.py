import pytest

from hmas.laws.least import LeastLately


def test_the_least_value_stays_and_rises_to_the_newest_with_its_time_constant() -> None:
    least = LeastLately(10.0)
    assert least.value == 0.0
    least.see(0.0, 2.0)
    least.see(1.0, 1.0)
    assert least.value == 1.0
    least.see(11.0, 3.0)
    assert least.value == pytest.approx(3.0 - 2.0 / 2.718281828)
    least.see(1e9, 3.0)
    assert least.value == 3.0
    least.clear()
    least.see(1e9, 5.0)
    assert least.value == 5.0


def test_what_was_seen_fades_from_its_own_instant_on() -> None:
    least = LeastLately(5.0)
    least.see(100.0, 4.0)
    least.see(105.0, 2.0)
    assert least.value == 2.0
    least.see(110.0, 6.0)
    assert least.value == pytest.approx(6.0 - 4.0 / 2.718281828)
    least.see(110.0, 6.0)  # no time has passed
    assert least.value == pytest.approx(6.0 - 4.0 / 2.718281828)
    least.clear()
    assert least.value == 0.0
