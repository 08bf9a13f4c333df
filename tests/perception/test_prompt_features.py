import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.perception.agent.features import (
    FEATURES,
    HEAD_CHARS,
    IS_STATED,
    STATED,
    TAIL_CHARS,
    features,
    stated_length,
    window,
)

PLAIN = "abc "


def test_stated_length_reads_units_ranges_and_scripts() -> None:
    assert stated_length("Write 500 words about cats.") == 500 * 1.35
    assert stated_length("in 300-400 words") == 400 * 1.35
    assert stated_length("a 1,000 tokens long essay") == 1000
    assert stated_length("写一篇800字的作文") == 600
    assert stated_length("Summarize it in one sentence.") == 25
    assert stated_length("Tell me a story.") == 0
    assert stated_length("In 1945 the war ended.") == 0


def test_stated_length_takes_the_largest_and_is_bounded() -> None:
    assert stated_length("2 sentences, at most 100 words") == 135
    assert stated_length("9999999 pages") == 20_000


def test_window_keeps_both_ends() -> None:
    text = "a" * 5000 + "b" * 5000
    cut = window(text)
    assert cut.startswith("a" * HEAD_CHARS)
    assert cut.endswith("b" * TAIL_CHARS)
    assert len(cut) == HEAD_CHARS + TAIL_CHARS + 1
    assert window("short") == "short"


@given(st.text(max_size=3000), st.integers(0, 10**6))
def test_features_are_always_finite_numbers_of_modest_size(text: str, prompt_tokens: int) -> None:
    numbers = features(text, prompt_tokens)
    assert len(numbers) == FEATURES
    assert all(0.0 <= number < 20.0 for number in numbers)


def test_cues_tell_prompts_apart() -> None:
    assert features("Be brief.", 3) != features("Be detailed.", 3)
    assert features("```x```", 3) != features("x", 3)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("500 words", 500 * 1.35), ("500-600 words", 600 * 1.35), ("500 to 600 words", 600 * 1.35),
        ("1,000 tokens", 1000.0), ("1000 characters long", 230.0), ("a 300-word essay", 300 * 1.35),
        ("3 short sentences", 75.0), ("2 full pages", 1200.0), ("one page", 600.0), ("two paragraphs", 220.0),
        ("a single-sentence answer", 25.0), ("five lines", 60.0), ("three or 4 sentences", 100.0),
        ("two sentences and 10 words", 50.0), ("10 words and 5 pages", 3000.0), ("800字", 600.0), ("0 words", 0.0),
        ("word", 0.0), ("5", 0.0), ("no length", 0.0), ("9999999 words", 20_000.0), ("14814 words", 14814 * 1.35),
        ("ONE Sentence", 25.0), ("six pages", 0.0), ("four words", 4 * 1.35), ("three bullets", 0.0),
        ("7 questions", 280.0), ("2 chapters", 1800.0), ("3 sections", 450.0),
    ],
)  # fmt: skip
def test_the_length_that_a_text_states(text: str, tokens: float) -> None:
    assert stated_length(text) == pytest.approx(tokens)


@pytest.mark.parametrize(("length", "cut"), [(1599, False), (1600, False), (1601, True)])
def test_a_window_is_of_both_ends_of_a_longer_text(length: int, cut: bool) -> None:
    text = "".join(chr(97 + i % 26) for i in range(length))
    assert window(text) == (f"{text[:1200]}\n{text[-400:]}" if cut else text)
    assert window("abcdef", 2, 3) == "ab\ndef"


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        (PLAIN * 9, 0, math.log1p(77) / 8), (PLAIN * 9, 1, math.log1p(36) / 10), ("a\nb\nc", 2, math.log1p(2) / 4),
        ("User: a\nAssistant: b\nBot : c", 3, math.log1p(3) / 3), ("a User: b", 3, 0.0), ("éab", 4, 1 / 4),
        ("ab12", 5, 10 * 2 / 4), ("ab[]{", 6, 10 * 3 / 5), ("ABcd", 7, 5 * 2 / 4), ("", 5, 0.0), ("", 4, 0.0),
        ("10 tokens", STATED, math.log1p(10) / 8), ("10 tokens", IS_STATED, 1.0), (PLAIN, IS_STATED, 0.0),
        ("why? ", 10, 1.0), ("为？", 10, 1.0), ("why?!", 10, 0.0), ("this:", 11, 1.0), ("this: a", 11, 0.0),
        ("", 10, 1.0),
        ("a? b?", 12, math.log1p(2) / 3), ("a\n- b\n* c\n1. d", 13, math.log1p(3) / 3), ("a - b", 13, 0.0),
        ("at least", 14, 1.0), ("minimum", 14, 1.0), ("minimums", 14, 0.0), ("at most", 15, 1.0),
        ("brief", 16, 1.0),
        ("long", 17, 1.0), ("json", 18, 1.0), ("```", 19, 1.0), ("solve", 20, 1.0),
        ("how many", 21, 1.0), (PLAIN, 21, 0.0),
    ],
)  # fmt: skip
def test_each_feature_is_its_figure(text: str, place: int, value: float) -> None:
    assert features(text, 77)[place] == pytest.approx(value)
    assert FEATURES == 22


def test_the_length_of_a_text_is_of_all_of_it_and_the_rest_of_its_ends() -> None:
    text = "a" * 3000 + "?" * 3000
    assert features(text, 0)[1] == pytest.approx(math.log1p(6000) / 10)
    assert features(text, 0)[12] == pytest.approx(math.log1p(400) / 3)
    assert features(text, 0)[2] == pytest.approx(math.log1p(1) / 4)  # the joint of the two ends
