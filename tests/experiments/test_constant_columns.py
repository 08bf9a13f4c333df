"""Columns that say the same of every system are found, and each on a published page has a reason."""

from pathlib import Path

import pytest

from experiments.report.constant_columns import ConstantLine, constant_columns, explained

PAGES = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.md"))
BY_ROW = "## At 1.5\n\n| system | a | b |\n|---|---|---|\n| x | 1 | 2 |\n| y | 1 | 3 |\n| z | 1 | 2 |\n"
BY_COLUMN = "| tenant | vllm | hmas | niyama |\n|---|---|---|---|\n| t | 1 | 2 | 2 |\n| Jain | 3 | 3 | 3 |\n"


def test_a_constant_line_is_found_whichever_way_the_table_lies() -> None:
    assert constant_columns(BY_ROW) == [ConstantLine("At 1.5", "a", "1", None)]
    assert constant_columns(BY_COLUMN) == [ConstantLine("", "Jain", "3", None)]
    assert constant_columns(BY_ROW.replace("| z | 1 | 2 |\n", "")) == []  # two systems are too few to tell
    assert "*Jain* (): **unexplained** (3)" in explained(BY_COLUMN)
    assert explained("# No table\n") == ""


@pytest.mark.parametrize(
    ("value", "least", "reason"),
    [
        ("1.000 ± 0.000", None, "every system has all that there is"),
        ("100.0 % ± 0.0", None, "every system has all that there is"),
        ("0.0 %", 0.3, "no system has any"),
        ("15703 ± 4", 0.999, "every system has at least 99.9% on time there, and all serve the same requests"),
        ("15703 ± 4", 0.9, ""),
        ("0.66", None, ""),
        ("1", None, ""),
        ("mixed", None, ""),
    ],
)
def test_a_reason_follows_from_the_figures(value: str, least: float | None, reason: str) -> None:
    assert ConstantLine("at 0.5", "figure", value, least).reason == reason


def test_the_least_share_on_time_is_that_of_the_same_table() -> None:
    page = "| system | goodput rate | ESG/s |\n|---|---|---|\n| a | 0.999 ± 0.1 | 7 |\n| b | 1.000 | 7 |\n"
    (line,) = constant_columns(page + "| c | 0.99 | 7 |\n")
    assert (line.name, line.least_on_time) == ("ESG/s", 0.99)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_constant_line_of_a_published_page_has_a_reason(page: Path) -> None:
    assert [line for line in constant_columns(page.read_text(encoding="utf-8")) if not line.reason] == []
