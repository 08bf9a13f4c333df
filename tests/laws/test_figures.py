"""What is believed of the figures and texts that an engine reports."""

from math import inf, nan

import pytest

from hmas.laws.figures import MAX_TEXT, MOST, sane, sane_int, shortened


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0.0), (0.0, 0.0), (1, 1.0), (2.5, 2.5), ("2.5", 2.5), (" 7 ", 7.0), (MOST, MOST)],
)
def test_a_number_from_zero_to_the_most_is_believed(value: object, number: float) -> None:
    assert sane(value) == number
    assert sane_int(value) == int(number)


@pytest.mark.parametrize(
    "value",
    [-1e-9, -1, MOST * 1.001, 1e300, inf, -inf, nan, "nan", "inf", "x", "", None, True, False, [1], {}, b"1", 10**400],
)
def test_what_cannot_be_true_is_not_believed(value: object) -> None:
    assert sane(value) is None
    assert sane_int(value) is None


def test_a_narrower_bound_may_be_given() -> None:
    assert (sane(8.0, 8.0), sane(8.1, 8.0)) == (8.0, None)
    assert (sane_int(8.0, 8.0), sane_int(8.1, 8.0), sane_int("7.9", 8.0)) == (8, None, 7)


def test_a_long_text_is_cut_to_the_most_that_is_passed_on() -> None:
    assert shortened("a" * MAX_TEXT) == "a" * MAX_TEXT
    assert shortened("a" * (MAX_TEXT + 1)) == "a" * (MAX_TEXT - 1) + "…"
    assert shortened("") == ""
