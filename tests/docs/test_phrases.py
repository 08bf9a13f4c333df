"""Phrases that CONTRIBUTING.md asks for other words in: none stands in a page, a docstring, a comment or a message."""

import re
from pathlib import Path

import pytest

from tests.docs.test_sentences import pages
from tests.house.repository import ROOT

PHRASES = re.compile(
    r"\b(?:whoever|lest|but for(?! a while| now)|came so far|(?:is|are) called so)\b|# so (?:long|many)\b",
    re.IGNORECASE,
)
EXAMPLES = "CONTRIBUTING.md"  # has them in its table of examples


def found(text: str) -> list[str]:
    return [match.group().strip() for match in PHRASES.finditer(text)]


def read() -> list[Path]:
    modules = [path for folder in ("services", "loadgen") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in [*pages(), *modules] if path.name != EXAMPLES and path.parent.name != "results"]


def test_no_phrase_of_the_list_stands_anywhere() -> None:
    told = {path.relative_to(ROOT).as_posix(): found(path.read_text(encoding="utf-8")) for path in read()}
    assert {path: phrases for path, phrases in told.items() if phrases} == {}


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("open to whoever comes", ["whoever"]),
        ("all headers, but for its length", ["but for"]),
        ("LIMIT_S = 1.0  # so long a frame waits", ["# so long"]),
        ("it takes so long, but for now", []),
    ],
)
def test_a_phrase_is_found(text: str, phrases: list[str]) -> None:
    assert found(text) == phrases
