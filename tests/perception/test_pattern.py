import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.perception.agent import rules
from hmas.perception.agent.pattern import Pattern, expression, needed


@pytest.mark.parametrize(
    ("alternative", "groups", "regex"),
    [
        (r"\b<Essay>\b", (("essay",),), r"\b(?:Essay)\b"),
        (
            r"<write|draft>.{0,80}<e-mail|c++>",
            (("write", "draft"), ("e-mail", "c++")),
            r"(?:write|draft).{0,80}(?:e\-mail|c\+\+)",
        ),
        (r"\s(?:task|\d+)\s", (), r"\s(?:task|\d+)\s"),
    ],
)
def test_what_stands_in_brackets_is_literal_and_needed(
    alternative: str, groups: tuple[tuple[str, ...], ...], regex: str
) -> None:
    assert (needed(alternative), expression(alternative)) == (groups, regex)


ALTERNATIVES = tuple(pattern for rule in rules._RULES for pattern in rule.pattern.sources)


@pytest.mark.parametrize("alternative", ALTERNATIVES)
@settings(max_examples=5)
@given(data=st.data())
def test_a_text_that_matches_a_rule_holds_what_the_rule_needs(data: st.DataObject, alternative: str) -> None:
    text = data.draw(
        st.from_regex(expression(alternative), alphabet=st.characters(codec="utf-8", exclude_characters="ıİſK"))
    )
    assert all(any(literal in text.lower() for literal in group) for group in needed(alternative))


def start(pattern: Pattern, text: str) -> int | None:
    return pattern.start(text, text.lower())


def test_the_leftmost_match_of_any_alternative_counts() -> None:
    pattern = Pattern(r"\b<letter>\b", r"^<write>", r"memo$")
    assert start(pattern, "Write a LETTER") == 0
    assert start(pattern, "a letter, then write a memo") == 2
    assert start(pattern, "letters and memos") is None
    assert start(pattern, "\nwrite") is None


def test_a_pattern_needs_a_literal_of_each_group() -> None:
    pattern = Pattern(r"<write|draft>.*<letter|memo>")
    texts = ("draft a\nMEMO", "a memo", "write", "memo, write", "x: write letters")
    assert [start(pattern, text) for text in texts] == [0, None, None, None, 3]
    assert start(Pattern(r"a+"), "xxaa") == 2
    assert start(Pattern(), "a") is None
    assert start(Pattern(r"^<a>"), "ba") is None
    assert start(Pattern(r"<b>", r"<a>"), "xab") == 1
