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
