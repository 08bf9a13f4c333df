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
