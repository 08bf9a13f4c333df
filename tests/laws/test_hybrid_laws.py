"""alpha by load and output lengths by application."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.laws.lengths import LengthHistory
from hmas.laws.niyama import CALM_S, LoadAlpha


def test_alpha_follows_the_load_within_its_range() -> None:
    alpha, relegations, seen = LoadAlpha(0.0, 8.0), 0, []
    for second in range(6):
        relegations += 1
        alpha.step(float(second), relegations)
        seen.append(alpha.value)
    assert seen == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    for second in range(6, 6 + 5 * int(CALM_S)):
        alpha.step(float(second), relegations)
    assert alpha.value == 0.0


@given(st.lists(st.integers(0, 2), max_size=200), st.sampled_from([(0.0, 0.0), (0.0, 5.0), (2.0, 64.0), (3.0, 3.0)]))
def test_alpha_never_leaves_its_range(load: list[int], limits: tuple[float, float]) -> None:
    alpha, relegations = LoadAlpha(*limits), 0
    for second, more in enumerate(load):
        relegations += more
        alpha.step(float(second), relegations)
        assert limits[0] <= alpha.value <= limits[1]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_expected_length_is_mean_plus_two_standard_deviations(lengths: list[int]) -> None:
    history = LengthHistory()
    for tokens in lengths:
        history.add(tokens)
    mean = sum(lengths) / len(lengths)
    deviation = (sum((x - mean) ** 2 for x in lengths) / len(lengths)) ** 0.5
    assert history.upper == pytest.approx(mean + 2 * deviation, rel=1e-6)


def test_a_bounded_memory_follows_a_change() -> None:
    history = LengthHistory(memory=16)
    for tokens in [10] * 200 + [500] * 200:
        history.add(tokens)
    assert history.mean == pytest.approx(500, rel=0.01)


def test_alpha_changes_at_most_once_a_second_and_tells_so() -> None:
    alpha = LoadAlpha(0.25, 8.0)
    assert alpha.step(10.0, 1)
    assert (alpha.value, alpha.step(10.999, 2)) == (1.0, False)
    assert alpha.step(11.0, 2)
    assert alpha.value == 2.0
    assert not alpha.step(12.0, 2)  # no more were relegated
    assert (alpha.step(11.0 + CALM_S - 0.001, 2), alpha.value) == (False, 2.0)


def test_alpha_is_halved_after_each_calm_and_falls_to_its_least_from_one() -> None:
    alpha = LoadAlpha(0.25, 8.0)
    for second in range(4):
        alpha.step(float(second), second + 1)
    assert alpha.value == 8.0
    seen = []
    for number in range(1, 6):
        assert not alpha.step(3.0 + number * CALM_S - 2.0, 4)
        changed = alpha.step(3.0 + number * CALM_S, 4)
        seen.append((alpha.value, changed))
    assert seen == [(4.0, True), (2.0, True), (1.0, True), (0.25, True), (0.25, False)]


def test_an_alpha_below_one_begins_at_one_and_one_above_is_doubled() -> None:
    low = LoadAlpha(0.25, 8.0)
    low.step(0.0, 1)
    assert low.value == 1.0
    high = LoadAlpha(3.0, 8.0)
    high.step(0.0, 1)
    assert high.value == 6.0
    high.step(CALM_S, 1)
    assert high.value == 3.0
    assert LoadAlpha(0.0, 0.5).step(0.0, 1)


def test_a_bounded_memory_weighs_the_newest_as_one_of_so_many() -> None:
    history = LengthHistory(memory=2)
    seen = []
    for tokens in (10.0, 20.0, 40.0):
        history.add(tokens)
        seen.append((history.count, history.mean, history.variance))
    assert seen == [(1, 10.0, 0.0), (2, 15.0, 25.0), (3, 27.5, 0.5 * (25.0 + 0.5 * 25.0**2))]
    assert history.upper == pytest.approx(27.5 + 2.0 * history.variance**0.5)
    assert LengthHistory().upper == 0.0
