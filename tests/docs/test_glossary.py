"""The glossary is in order, and each of its words has one row."""

import re
from itertools import pairwise

import pytest

from tests.house.repository import ROOT

GLOSSARY = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
GREEK = {"λ": "lambda", "μ": "mu", "ξ": "xi", "ρ": "rho", "Ω": "omega"}
ONE_MEANING = ("place", "promise", "outlook", "ledger", "plan", "past", "entry")  # words that once had several


def tables(page: str) -> list[list[str]]:
    """The terms of each table, in order, without its head."""
    found = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    return [[row.split("|")[1].strip() for row in table.splitlines()[2:]] for table in found]


def key(term: str) -> str:
    """What a term is sorted by: its letters and digits as they are read aloud, whatever their case."""
    spoken = "".join(GREEK.get(letter, letter) for letter in term)
    return " ".join(re.findall(r"\w+", spoken.replace("_", " ").casefold()))


def faults(page: str) -> list[str]:
    """The terms that stand before one that should come first, and those with two rows."""
    found = []
    for terms in tables(page):
        for first, second in pairwise(terms):
            if key(first) > key(second):
                found.append(f"{second} comes before {first}")
    words = [word.strip() for terms in tables(page) for term in terms for word in term.split(", ")]
    return found + [f"{word} twice" for word in sorted(set(words)) if words.count(word) > 1]


def test_the_glossary_is_in_order() -> None:
    assert faults(GLOSSARY) == []
    assert sum(map(len, tables(GLOSSARY))) > 100


@pytest.mark.parametrize("word", ONE_MEANING)
def test_a_word_has_one_meaning(word: str) -> None:
    assert len([term for terms in tables(GLOSSARY) for term in terms if word in re.findall(r"\w+", term)]) <= 1


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        (("backlog", "B_token", "Ω", "past"), ["B_token comes before backlog"]),
        (("TTFT", "TPOT"), ["TPOT comes before TTFT"]),
        (("plan", "plan"), ["plan twice"]),
        (("EDF, LLF", "LLF"), ["LLF twice"]),
        (("lane", "λ*", "Ω", "past"), ["λ* comes before lane"]),
        (("bypass (fail open)", "bypass ξ"), []),
    ],
)
def test_a_glossary_out_of_order_is_found(terms: tuple[str, ...], told: list[str]) -> None:
    assert faults("| word | meaning |\n|---|---|\n" + "".join(f"| {term} | ... |\n" for term in terms)) == told
