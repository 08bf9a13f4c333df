"""How the error of a `Retry-After` is counted, and how the page tells it."""

from pathlib import Path

import pytest

from services.sim.admission import SCENARIOS, WAITS_S, Advice, Refused
from services.sim.report.admission import write_page

CAPACITY_RPS = 18.9  # of the scenario's one engine


def test_an_error_is_relative_to_the_least_wait_that_would_have_done() -> None:
    assert Refused(1.0, 10, 8, True).error == 0.25
    assert Refused(1.0, 6, 8, False).error == 0.25
    assert Refused(1.0, 1, 1, True).error == 0.0
    never = WAITS_S[-1]
    assert Refused(1.0, 2 * never, None, None).error == 0.0
    assert Refused(1.0, never // 3, None, False).error == pytest.approx(2.0 / 3.0, abs=0.01)


def test_the_page_says_what_was_met_and_what_was_not_measured(tmp_path: Path) -> None:
    right, wrong, never = Refused(1.0, 4, 4, True), Refused(2.0, 9, 3, True), Refused(3.0, 60, None, None)
    found = [Advice(SCENARIOS[0], 10, 3, (right, wrong, never)), Advice(SCENARIOS[1], 10, 0, ())]
    write_page(found, CAPACITY_RPS, 1, tmp_path)
    page = (tmp_path / "admission.md").read_text(encoding="utf-8")
    assert "| 3 of 10 | 3 | 0% | ≤ 25%: met | 67% | 100% of 2 |" in page
    assert "not measured" in page
