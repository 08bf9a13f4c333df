"""Turns prompts into arrays for the training of the heads, their calibration and their evaluation."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas_lab.perception.training.corpus import Passage, Prompt

TASK_ORDER = tuple(task for task in TaskType if task is not TaskType.UNKNOWN)
_PASSAGE_CHARS = 120
ASSUMED_WEIGHT = 0.1
# For runs that leave sources out: most prompts per source, and number of groups of sources.
SOURCE_CAP = 200
GROUPS = 9


@dataclass(frozen=True, slots=True)
class LengthRows:
    """Arrays with one row per answer.

    `prompt` is the prompt's index, `model` the index of the answering model (0: any other model), `tokens` the answer's
    length and `weight` its weight in training.
    """

    prompt: NDArray[np.int64]
    model: NDArray[np.int64]
    tokens: NDArray[np.float32]
    weight: NDArray[np.float32]


def task_index(prompts: Sequence[Prompt]) -> NDArray[np.int64]:
    """Returns the index of each prompt's task type in TASK_ORDER; -1 where the type is not known."""
    return np.array([TASK_ORDER.index(p.task) if p.task is not None else -1 for p in prompts], np.int64)


def model_names(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """Returns the names of the models that wrote the answers, sorted, after "" for every other model at index 0."""
    return ("", *sorted({answer.model for prompt in prompts for answer in prompt.answers}))


def length_rows(prompts: Sequence[Prompt], models: Sequence[str]) -> LengthRows:
    """Returns one row per answer of the prompts.

    The total weight of a prompt is the square root of its number of answers; an assumed answer, which has no model's
    name, weighs `ASSUMED_WEIGHT` of a real one.
    """
    place = {name: index for index, name in enumerate(models)}
    rows = [
        (
            index,
            place.get(answer.model, 0),
            answer.tokens,
            len(prompt.answers) ** -0.5 * (1.0 if answer.model else ASSUMED_WEIGHT),
        )
        for index, prompt in enumerate(prompts)
        for answer in prompt.answers
    ]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    return LengthRows(
        np.array(columns[0], np.int64),
        np.array(columns[1], np.int64),
        np.array(columns[2], np.float32),
        np.array(columns[3], np.float32),
    )


def passages(prompts: Iterable[Prompt]) -> Iterator[Passage]:
    """Yields prose to which synthetic instructions can be added: answers, and documents contained in prompts."""
    for prompt in prompts:
        if prompt.task in (TaskType.CODE_GENERATION, TaskType.MATH_REASONING) or not prompt.passages:
            continue
        yield from (Passage(text, prompt.source) for text in prompt.passages)
        body = prompt.text.rpartition("\n\n")[2]
        if body != prompt.text and len(body) > _PASSAGE_CHARS:
            yield Passage(body, prompt.source)


def capped(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """Returns at most `SOURCE_CAP` prompts per source, drawn by `seed`, so that no large source dominates a type."""
    rng = random.Random(seed)
    by_source: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_source.setdefault(prompt.source, []).append(prompt)
    return [
        p
        for found in by_source.values()
        for p in (found if len(found) <= SOURCE_CAP else rng.sample(found, SOURCE_CAP))
    ]


def source_groups(typed: Sequence[Prompt]) -> list[frozenset[str]]:
    """Returns `GROUPS` groups of sources that are left out of training together.

    Thus one run measures several sources, although each run also lacks the others of its group. Sources of one task
    type are in different groups, so that every type stays in training.
    """
    first = {prompt.source: str(prompt.task) for prompt in reversed(typed)}
    order = sorted(first, key=lambda source: (first[source], source))
    return [frozenset(order[start::GROUPS]) for start in range(GROUPS)]
