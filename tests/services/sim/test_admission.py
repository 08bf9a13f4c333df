"""How the error of a `Retry-After` is counted, and how the page tells it."""

from math import inf
from pathlib import Path

import pytest

from services.sim.admission import SCENARIOS, WAITS_S, Advice, Refused
from services.sim.report.admission import write_page

CAPACITY_RPS = 18.9  # of the scenario's one engine


def test_an_error_is_relative_to_the_least_wait_that_would_have_done() -> None:
    assert Refused(1.0, 10, 8, 10.0).error == 0.25
    assert Refused(1.0, 6, 8, None).error == 0.25
    assert Refused(1.0, 1, 1, 1.0).error == 0.0
    never = WAITS_S[-1]
    assert Refused(1.0, 2 * never, None, None).error == 0.0
    assert Refused(1.0, never // 3, None, None).error == pytest.approx(2.0 / 3.0, abs=0.01)


def test_who_follows_advice_counts_until_it_leads_somewhere() -> None:
    at_once, twice, never = Refused(1.0, 6, 2, 6.0), Refused(1.0, 2, 8, 8.0), Refused(1.0, 2, None, None)
    assert (at_once.followed_error, twice.followed_error, never.followed_error) == (0.0, 0.75, inf)
    assert (at_once.met, twice.met, never.met) == (True, False, False)
    beyond = Refused(1.0, WAITS_S[-1] + 1, 1, None)
    assert not beyond.followed
    assert Advice(SCENARIOS[0], 9, 4, (at_once, twice, never, beyond)).median_followed_error == 0.75


def test_the_page_says_what_was_met_and_what_was_not_measured(tmp_path: Path) -> None:
    right, wrong, never = Refused(1.0, 4, 4, 4.0), Refused(2.0, 9, 3, 9.0), Refused(3.0, 60, None, None)
    found = [Advice(SCENARIOS[0], 10, 3, (right, wrong, never)), Advice(SCENARIOS[1], 10, 0, ())]
    write_page(found, CAPACITY_RPS, 1, tmp_path)
    page = (tmp_path / "admission.md").read_text(encoding="utf-8")
    assert "| 3 of 10 | 3 | 0% | met | 100% of 2 | 0% | met | 9 |" in page
    assert "not measured" in page
