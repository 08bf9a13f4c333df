"""Prompts of each task type in our own words."""

import re
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.request import TaskType
from hmas.laws.tokens import BYTES_PER_TOKEN
from hmas_loadgen.plan import Api
from hmas_loadgen.prompts import PromptBuilder
from hmas_loadgen.slo import TASKS
from hmas_loadgen.traces.row import TraceRow
from hmas_loadgen.typed import typed_prompts

TYPED = typed_prompts()
PHRASES = Path(__file__).parents[2] / "lab/hmas_lab/perception/training/phrases.yaml"


@given(st.sampled_from(TASKS), st.integers(1, 4000), st.integers(1, 4000), st.integers())
def test_a_prompt_has_exactly_its_tokens(task: TaskType, tokens: int, output_tokens: int, seed: int) -> None:
    text = TYPED.text(task, tokens, output_tokens, Random(seed))
    assert len(text.encode()) == tokens * BYTES_PER_TOKEN
    assert "{" not in text
    assert "\0" not in text


def test_each_type_has_prompts_of_its_own() -> None:
    assert set(TYPED.frames) == set(TASKS)
    frames = [frame for frames in TYPED.frames.values() for frame in frames]
    assert len(frames) == len(set(frames)) >= 65


def test_a_length_that_is_asked_for_follows_the_answer() -> None:
    asked = [
        int(found.group(1))
        for seed in range(300)
        if (found := re.search(r"(\d+) words", TYPED.text(TaskType.LONG_FORM_GENERATION, 60, 1400, Random(seed))))
    ]
    assert len(asked) > 50
    assert sorted(asked)[len(asked) // 2] == pytest.approx(1000, rel=0.15)


def test_the_builder_gives_a_row_a_prompt_of_its_type_and_no_two_the_same() -> None:
    builder = PromptBuilder(1, Api.COMPLETIONS, 512)
    row = TraceRow(arrival_s=0.0, input_tokens=80, output_tokens=50, task=TaskType.TRANSLATION)
    texts = [builder.text(i, row) for i in range(50)]
    assert len(set(texts)) == 50
    assert texts == [PromptBuilder(1, Api.COMPLETIONS, 512).text(i, row) for i in range(50)]
    assert all(any(tongue in text for tongue in TYPED.slots["tongue"]) for text in texts)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", re.sub(r"\{\w+\}|<[^>]*>", " | ", text).lower())


def runs(texts: list[str], length: int) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for text in texts:
        for part in re.sub(r"\{\w+\}|<[^>]*>", "|", text).split("|"):
            each = words(part)
            found |= {tuple(each[i : i + length]) for i in range(len(each) - length + 1)}
    return found


def test_perception_s_training_shares_no_phrase_with_them() -> None:
    """Prompts that perception was trained on would tell nothing about what it does for others'."""

    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [t for each in value.values() for t in texts(each)]
        return [t for each in value for t in texts(each)] if isinstance(value, list) else [str(value)]

    trained = texts(yaml.safe_load(PHRASES.read_text()))
    ours = [frame for frames in TYPED.frames.values() for frame in frames]
    shared = runs(ours, 5) & runs(trained, 5)
    assert not shared, shared


def test_sentences_begin_where_they_should() -> None:
    assert all(TYPED.prose[start].isupper() for start in TYPED.starts)
    assert all(TYPED.prose[b - 2 : b] == ". " for _, b in pairwise(TYPED.starts))
