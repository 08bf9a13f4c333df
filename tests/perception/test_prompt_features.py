from hypothesis import given
from hypothesis import strategies as st

from hmas.perception.agent.features import FEATURES, HEAD_CHARS, TAIL_CHARS, features, stated_length, window


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
