"""Each decision is one page of context, decision and consequences; what it rests on lies in docs/lab."""

import pytest

from docs.decisions import decision_row
from tests.docs.test_sentences import measured
from tests.house.repository import ROOT

MOST_LINES, MOST_WORDS = 45, 540
PARTS = ("**Context", "**Decision", "**Consequences")
ADR = sorted((ROOT / "docs/adr").glob("0*.md"))
LAB = sorted((ROOT / "docs/lab").glob("*.md"))


def faults(page: str) -> list[str]:
    """What keeps a decision from being one page of its three parts."""
    found = []
    if (lines := len(page.splitlines())) > MOST_LINES:
        found.append(f"{lines} lines")
    if (words := sum(words for words, _ in measured(page, cells=False))) > MOST_WORDS:
        found.append(f"{words} words")
    places = [page.find(f"\n{part}") for part in PARTS]
    return found if -1 not in places and places == sorted(places) else [*found, f"not the parts {', '.join(PARTS)}"]


def test_a_decision_is_one_page() -> None:
    found = {path.name: faults(path.read_text(encoding="utf-8")) for path in ADR}
    assert {name: told for name, told in found.items() if told} == {}
    assert len(found) >= 48


def test_a_page_of_the_laboratory_belongs_to_its_decision() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in ADR}
    assert [path.name for path in LAB if f"](../lab/{path.name})" not in pages.get(path.name, "")] == []
    assert LAB


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("\n**Context.**\n\n**Decision.**\n\n**Consequences.**\n", []),
        ("\n**Context.**\n\n**Decision.**\n\n**Consequences.**\n" + "\n" * MOST_LINES, [f"{MOST_LINES + 6} lines"]),
        ("\n**Context.**\n\n**Decision.**\n\n**Consequences.** " + "word " * MOST_WORDS, [f"{MOST_WORDS + 3} words"]),
        ("\n**Decision.**\n\n**Context.**\n\n**Consequences.**\n", [f"not the parts {', '.join(PARTS)}"]),
        ("\n**Context.**\n\n**Decision.**\n", [f"not the parts {', '.join(PARTS)}"]),
    ],
    ids=["one page", "lines", "words", "order", "no consequences"],
)
def test_what_is_no_page_is_found(page: str, told: list[str]) -> None:
    assert faults(page) == told


def test_the_row_of_a_decision_has_its_title_and_what_became_of_it() -> None:
    page = "# 0007 A way\n\n**Status:** superseded by [9](0009-b.md). It\nwas slow.\n\n**Context.** None.\n"
    assert decision_row("0007-a-way.md", page) == "| [0007](0007-a-way.md) | A way | superseded by [9](0009-b.md) |"
    with pytest.raises(ValueError, match="has no line that begins"):
        decision_row("0008-b.md", "# 0008 B\n\n**Context.** None.\n")
