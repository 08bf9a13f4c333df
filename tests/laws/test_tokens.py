"""The shared prompt-token estimate."""

import pytest

from hmas.laws.tokens import MESSAGE_OVERHEAD, estimate_prompt_tokens, flatten_messages, text_tokens


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_three_letter_words_count_one_each(count: int) -> None:
    assert text_tokens(" ".join(["abc"] * count)) == count


def test_other_scripts_count_their_bytes() -> None:
    assert text_tokens("自然语言") == 3
    assert text_tokens("\ud800") == 1  # a lone surrogate, which JSON can carry, is no crash


def test_chat_counts_text_parts_and_an_overhead_per_message() -> None:
    parts = [{"type": "text", "text": "abc abc"}, {"type": "file", "file": {"file_id": "x" * 999}}]
    messages = [{"role": "system", "content": "abc"}, {"role": "user", "content": parts}]
    assert estimate_prompt_tokens(messages) == 1 + 2 + 2 * MESSAGE_OVERHEAD
    assert flatten_messages(messages) == "abc\nabc abc"


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("abc " * 9, 9),
        ([5, 6, 7], 3),
        (["abc", "abc"], 2),
        ("", 1),
        ([], 1),
        (None, 1),
        ([{"content": 5}], 4),
        ([None], 1),
    ],
)
def test_any_shape_has_a_count(prompt: object, tokens: int) -> None:
    assert estimate_prompt_tokens(prompt) == tokens
    flatten_messages(prompt)
