"""Columns that say the same of every system are found, and each on a published page has a reason."""

from pathlib import Path

import pytest

from experiments.report.constant_columns import REASONS, constant_columns, explained

PAGES = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.md"))
BY_ROW = "## At 1.5\n\n| system | a | b |\n|---|---|---|\n| x | 1 | 2 |\n| y | 1 | 3 |\n| z | 1 | 2 |\n"
BY_COLUMN = "| tenant | vllm | hmas | niyama |\n|---|---|---|---|\n| t | 1 | 2 | 2 |\n| Jain | 3 | 3 | 3 |\n"


def test_a_constant_line_is_found_whichever_way_the_table_lies() -> None:
    assert constant_columns(BY_ROW) == [("At 1.5", "a")]
    assert constant_columns(BY_COLUMN) == [("", "Jain")]
    assert constant_columns(BY_ROW.replace("| z | 1 | 2 |\n", "")) == []  # two systems are too few to tell
    assert "*a* (At 1.5): **unexplained**" in explained(BY_ROW)
    assert explained("# No table\n") == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_constant_line_of_a_published_page_has_a_reason(page: Path) -> None:
    assert [found for found in constant_columns(page.read_text(encoding="utf-8")) if found[1] not in REASONS] == []
