"""How the error of a `Retry-After` is counted, and how the page tells it."""

from dataclasses import replace
from math import inf

import pytest

from experiments import admission
from experiments.admission import (
    SCENARIOS,
    STUDY,
    WAITS_S,
    Advice,
    Followed,
    Refused,
    advice_of,
    measure,
    page_of,
)
from experiments.pages.template import render

CAPACITY_RPS = 12.5  # of the scenario's one engine


def test_an_error_is_relative_to_the_least_wait_that_would_have_done() -> None:
    assert Refused(10, 8).error == 0.25
    assert Refused(6, 8).error == 0.25
    assert Refused(1, 1).error == 0.0
    never = WAITS_S[-1]
    assert Refused(2 * never, None).error == 0.0
    assert Refused(never // 3, None).error == pytest.approx(2.0 / 3.0, abs=0.01)


def test_who_follows_advice_counts_until_it_leads_somewhere() -> None:
    at_once, twice, never = Followed(6, 6.0), Followed(2, 8.0), Followed(2, None)
    assert (at_once.error, twice.error, never.error) == (0.0, 0.75, inf)
    assert (at_once.met, twice.met, never.met) == (True, False, False)
    assert (
        Advice(
            scenario=SCENARIOS[0],
            offered=9,
            refused=4,
            sample=(),
            followed=(at_once, twice, never),
            others=(1.0, 1.0),
            outgrown=0.1,
        ).median_followed_error
        == 0.75
    )


def test_the_page_says_what_was_met_and_what_was_not_measured() -> None:
    sample, followed = (Refused(4, 4), Refused(60, None)), (Followed(4, 4.0), Followed(9, 9.0), Followed(3, None))
    found = [
        Advice(
            scenario=SCENARIOS[0],
            offered=10,
            refused=3,
            sample=sample,
            followed=followed,
            others=(0.9, 0.8),
            outgrown=0.1,
        ),
        Advice(scenario=SCENARIOS[1], offered=10, refused=0, sample=(), followed=(), others=(1.0, 1.0), outgrown=0.1),
    ]
    page = render(STUDY.page, **page_of(found, CAPACITY_RPS, 1))
    assert "10.0 % (steady overload at 1.3 λ*)" in page
    assert "| 3 of 10 | 3 | 0% | met | 67% | 4 | 0.900 / 0.800 | 2 | 0% | met | 0% | 50% |" in page
    assert "not measured" in page


@pytest.mark.long
def test_after_a_burst_who_comes_back_when_told_to_is_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "WAITS_S", (1, 20))
    short = replace(SCENARIOS[1], duration_s=90.0)
    advice = advice_of(short, [measure(short, CAPACITY_RPS, 1, 2)])
    assert 0 < len(advice.sample) <= 2 < min(advice.refused, len(advice.followed))
    assert sum(f.met for f in advice.followed) > 0.8 * len(advice.followed)
