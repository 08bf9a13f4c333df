"""Prompts have exactly the tokens asked for, and share prefixes exactly where hash ids do."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.request import TaskType
from hmas.laws.tokens import MESSAGE_OVERHEAD, estimate_prompt_tokens
from hmas_loadgen.plan import Api
from hmas_loadgen.prompts import PromptBuilder, load_corpus
from hmas_loadgen.traces.row import TraceRow
from hmas_loadgen.words import WORDS

CORPUS = {
    TaskType.QA: ("Why?", "Como está? " * 40, "为什么天空是蓝色的？" * 30, "One\n\ntwo"),
    TaskType.TRANSLATION: ("Übersetze: Straße ☃ 🙂" * 50,),
}
CHAT = PromptBuilder(1, Api.CHAT, 512)
PLAIN = PromptBuilder(1, Api.COMPLETIONS, 512)
SAMPLED = PromptBuilder(1, Api.COMPLETIONS, 512, CORPUS)


def tokens(prompt: str, api: Api) -> int:
    return estimate_prompt_tokens([{"role": "user", "content": prompt}] if api is Api.CHAT else prompt)


def test_the_words_are_what_the_estimate_needs() -> None:
    assert len(set(WORDS)) == 256
    assert {len(word.encode()) for word in WORDS} == {3}


@given(st.integers(0, 10**6), st.integers(MESSAGE_OVERHEAD + 1, 5000), st.lists(st.integers(0, 2**40), max_size=12))
def test_synthetic_counts_are_exact(index: int, count: int, hash_ids: list[int]) -> None:
    row = TraceRow(arrival_s=0.0, input_tokens=count, output_tokens=1, hash_ids=tuple(hash_ids))
    assert tokens(CHAT.text(index, row), Api.CHAT) == count
    assert tokens(PLAIN.text(index, row), Api.COMPLETIONS) == count


@given(st.integers(0, 10**6), st.integers(1, 400), st.sampled_from(sorted(CORPUS)))
def test_sampled_counts_are_exact_also_with_wide_characters(index: int, count: int, task: TaskType) -> None:
    row = TraceRow(arrival_s=0.0, input_tokens=count, output_tokens=1, task=task)
    assert tokens(SAMPLED.text(index, row), Api.COMPLETIONS) == count


@pytest.mark.parametrize("count", [1, 2, 65_536, 70_000, 300_000])
def test_extremes(count: int) -> None:
    assert tokens(PLAIN.text(3, TraceRow(arrival_s=0.0, input_tokens=count, output_tokens=1)), Api.COMPLETIONS) == count


def test_a_chat_message_has_at_least_its_overhead_and_one_token() -> None:
    assert (
        tokens(CHAT.text(0, TraceRow(arrival_s=0.0, input_tokens=1, output_tokens=1)), Api.CHAT) == MESSAGE_OVERHEAD + 1
    )


def shared_blocks(a: str, b: str, block_tokens: int) -> int:
    size = 4 * block_tokens
    count = 0
    while a[count * size :] and a[: (count + 1) * size] == b[: (count + 1) * size]:
        count += 1
    return count


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=6),
    st.sampled_from([16, 512]),
)
def test_prefixes_are_shared_exactly_where_hash_ids_are(left: list[int], right: list[int], block: int) -> None:
    builder = PromptBuilder(9, Api.COMPLETIONS, block)
    texts = [
        builder.text(
            number, TraceRow(arrival_s=0.0, input_tokens=block * (len(ids) + 1), output_tokens=1, hash_ids=tuple(ids))
        )
        for number, ids in enumerate((left, right))
    ]
    expected = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        expected += 1
    assert shared_blocks(texts[0], texts[1], block) == expected


def test_without_hash_ids_nothing_is_shared() -> None:
    texts = [PLAIN.text(index, TraceRow(arrival_s=0.0, input_tokens=500, output_tokens=1)) for index in range(300)]
    openings = {text[:16] for text in texts}
    assert len(openings) == 300


def test_deterministic_by_seed_and_index() -> None:
    row = TraceRow(arrival_s=0.0, input_tokens=300, output_tokens=1, task=TaskType.QA)
    assert SAMPLED.text(4, row) == PromptBuilder(1, Api.COMPLETIONS, 512, CORPUS).text(4, row)
    assert SAMPLED.text(4, row) != SAMPLED.text(5, row)
    assert PLAIN.text(4, row) != PromptBuilder(2, Api.COMPLETIONS, 512).text(4, row)


def test_the_traces_own_prompt_wins() -> None:
    assert (
        SAMPLED.text(0, TraceRow(arrival_s=0.0, input_tokens=99, output_tokens=1, prompt="mine", task=TaskType.QA))
        == "mine"
    )


def test_the_real_corpus() -> None:
    data = os.environ.get("HMAS_DATA")
    if not data:
        pytest.skip("HMAS_DATA is not set: no labelled prompts at hand")
    corpus = load_corpus(Path(data) / "prompts")
    assert len(corpus) == 13
    builder = PromptBuilder(1, Api.CHAT, 512, corpus)
    for index, task in enumerate(corpus):
        for count in (5, 80, 2000):
            assert (
                tokens(
                    builder.text(index, TraceRow(arrival_s=0.0, input_tokens=count, output_tokens=1, task=task)),
                    Api.CHAT,
                )
                == count
            )


def test_a_folder_without_prompts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give --prompts a folder of labelled prompts"):
        load_corpus(tmp_path)
