"""The shared prompt-token estimate."""

import pytest

from hmas.laws.media import UNKNOWN_IMAGE_TOKENS
from hmas.laws.tokens import (
    MESSAGE_OVERHEAD,
    content_text,
    content_tokens,
    estimate_prompt_tokens,
    flatten_messages,
    json_tokens,
    message_tokens,
    text_bytes,
    text_tokens,
)

IMAGE = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}


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


@pytest.mark.parametrize(("text", "size"), [("", 0), ("abc", 3), ("é", 2), ("自", 3), ("a\ud800", 4)])
def test_a_text_has_the_bytes_of_utf_8(text: str, size: int) -> None:
    assert text_bytes(text) == size
    assert text_tokens(text) == -(-size // 4)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abcd", 4), ("é", 2), (5, 4), (None, 4), (True, 4), ([], 0), ([5], 6), ([5, "ab"], 10), ({}, 0),
        ({"ab": "abc"}, 2 + 4 + 3), ({"ab": [5, {"c": 1}]}, 2 + 4 + 2 * 2 + 4 + 1 + 4 + 4),
        ({"id": "call_123", "x": 1}, 1 + 4 + 4), ({"id": 7}, 2 + 4 + 4),
        ({"tool_call_id": {"a": 1}}, 12 + 4 + 1 + 4 + 4),
        ({"a": IMAGE}, 1 + 4 + 4 * UNKNOWN_IMAGE_TOKENS), ([IMAGE, "abcd"], 2 * 2 + 4 * UNKNOWN_IMAGE_TOKENS + 4),
    ],
)  # fmt: skip
def test_a_json_value_counts_the_bytes_of_its_texts_and_its_punctuation(value: object, size: int) -> None:
    assert json_tokens(value) == -(-size // 4)


def test_every_kind_of_part_of_a_message_counts() -> None:
    parts: list[object] = [
        {"type": "text", "text": "abc abc"}, 7, None, IMAGE, {"type": "tool_result", "content": "abcdefgh"},
    ]  # fmt: skip
    assert content_tokens(parts) == 2 + UNKNOWN_IMAGE_TOKENS + json_tokens(parts[-1])
    assert content_tokens([{"type": "text", "text": "abc abc"}, 7, {"text": "abc"}]) == 3
    assert (content_tokens("abc abc"), content_tokens(5), content_tokens(None), content_tokens([])) == (2, 0, 0, 0)


def test_the_model_decides_how_much_an_image_counts() -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzk"  # 640 x 480
    part = {"type": "image", "source": {"type": "base64", "data": png}}
    for model, tokens in (("", 391), ("google/gemma-3", 256)):
        assert content_tokens([part], model) == tokens
        assert json_tokens({"a": part}, model) == -(-(5 + 4 * tokens) // 4)
        assert message_tokens({"content": [part]}, model) == MESSAGE_OVERHEAD + tokens
        assert content_tokens([{"type": "tool_result", "a": part}], model) > tokens


def test_calls_of_tools_count_beside_the_text() -> None:
    calls = [{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": "abc abc", "tool_calls": calls}
    assert message_tokens(message) == MESSAGE_OVERHEAD + 2 + json_tokens(calls)
    assert json_tokens(calls) > 0
    for other in (list[object](), None, "calls", 5):
        assert message_tokens(message | {"tool_calls": other}) == MESSAGE_OVERHEAD + 2


def test_the_text_of_a_message_is_that_of_its_text_parts() -> None:
    assert content_text("a") == "a"
    assert content_text([{"text": "a"}, {"text": 5}, IMAGE, 7, {"text": "b"}]) == "a\nb"
    assert content_text({"text": "a"}) == ""
    assert flatten_messages([{"content": "a"}, 5, {"content": [{"text": "b"}]}, {}]) == "a\nb\n"
    assert flatten_messages({"content": "a"}) == ""
