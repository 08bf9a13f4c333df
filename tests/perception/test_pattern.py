import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.perception.agent import rules
from hmas.perception.agent.pattern import Pattern, needed


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        (r"\bEssay\b", (("essay",),)),
        (r"\b(?:write|draft)\b.{0,80}\b(?:letter|e-?mail)\b", (("write", "draft"), ("letter", "mail"))),
        (r"\bsummar(?:y|ize)\b", (("summar",), ("y", "ize"))),
        (r"translat(?:e|ion)?", (("translat",),)),  # what may be absent is not needed
        (r"\s(?:task|\d+)\s", ()),  # a number needs no word
        (r"^(?!no)yes", (("yes",),)),
        (r"(?:ab){2,}", (("ab",),)),
    ],
)
def test_what_a_pattern_needs(pattern: str, groups: tuple[tuple[str, ...], ...]) -> None:
    assert needed(pattern) == groups


ALTERNATIVES = tuple(pattern for rule in rules._RULES for pattern in rule.pattern.sources)


@given(st.data())
def test_a_text_that_matches_a_rule_holds_what_the_rule_needs(data: st.DataObject) -> None:
    alternative = data.draw(st.sampled_from(ALTERNATIVES))
    text = data.draw(st.from_regex(alternative, alphabet=st.characters(codec="utf-8", exclude_characters="ıİſK")))
    assert all(any(literal in text.lower() for literal in group) for group in needed(alternative))


def start(pattern: Pattern, text: str) -> int | None:
    return pattern.start(text, text.lower())


def test_the_leftmost_match_of_any_alternative_counts() -> None:
    pattern = Pattern(r"\bletter\b", r"^write", r"memo$")
    assert start(pattern, "Write a LETTER") == 0
    assert start(pattern, "a letter, then write a memo") == 2
    assert start(pattern, "letters and memos") is None
    assert start(pattern, "\nwrite") is None
