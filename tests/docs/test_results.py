"""A page of results tells its verdict and the table that carries it on the first screen; the rows behind are JSON."""

from pathlib import Path

import pytest

from tests.house.repository import ROOT

FIRST_SCREEN = 80  # lines
MOST_WORDS = 66_700  # of all pages: what is said of each run belongs into the JSON beside them
NO_TABLE = ("simulator.md",)  # the index of the simulator's pages

PAGES = sorted((ROOT / "docs/results").glob("*.md"))


def faults(page: str) -> list[str]:
    """Returns what is amiss with the first screen of a page."""
    title, *rest = [line for line in page.splitlines()[:FIRST_SCREEN] if line.strip()]
    found = [] if title.startswith("# ") else ["no title"]
    if not rest or rest[0].startswith(("|", "#", "!", "<", "```")):
        found.append("no verdict after the title")
    if not any(line.startswith("|--") or line.startswith("| --") for line in rest):
        found.append(f"no table within {FIRST_SCREEN} lines")
    return found


def words(pages: list[Path]) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_first_screen_has_the_verdict_and_a_table(page: Path) -> None:
    found = faults(page.read_text(encoding="utf-8"))
    assert [fault for fault in found if not (page.name in NO_TABLE and "table" in fault)] == []


def test_the_pages_are_short() -> None:
    assert words(PAGES) <= MOST_WORDS


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("# A\n\n| a |\n|---|\n| b |\n", "no verdict after the title"),
        ("# A\n\n## B\n\ntext\n\n| a |\n|---|\n| b |\n", "no verdict after the title"),
        ("# A\n\nIt holds.\n" + "\n" * FIRST_SCREEN + "| a |\n|---|\n", f"no table within {FIRST_SCREEN} lines"),
        ("It holds.\n\nMore.\n\n| a |\n| --- |\n", "no title"),
    ],
)
def test_a_page_that_begins_otherwise_is_found(page: str, fault: str) -> None:
    assert faults(page) == [fault]
