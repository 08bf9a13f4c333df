"""Prompts as arrays: what the heads train on and what calibration and evaluation read."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas.perception.training.corpus import Passage, Prompt

TASK_ORDER = tuple(task for task in TaskType if task is not TaskType.UNKNOWN)
_PASSAGE_CHARS = 120
ASSUMED_WEIGHT = 0.1
# Of runs that leave sources out.
SOURCE_CAP = 200
GROUPS = 9


@dataclass(frozen=True, slots=True)
class LengthRows:
    """One row an answer: the prompt's place, the model's place (0: any other), tokens, and a weight."""

    prompt: NDArray[np.int64]
    model: NDArray[np.int64]
    tokens: NDArray[np.float32]
    weight: NDArray[np.float32]


def task_index(prompts: Sequence[Prompt]) -> NDArray[np.int64]:
    """Place of each prompt's type in TASK_ORDER; -1 where no source says it."""
    return np.array([TASK_ORDER.index(p.task) if p.task is not None else -1 for p in prompts], np.int64)


def model_names(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """Models that wrote the answers, in order of name; place 0 stands for every other model."""
    return ("", *sorted({answer.model for prompt in prompts for answer in prompt.answers}))


def length_rows(prompts: Sequence[Prompt], models: Sequence[str]) -> LengthRows:
    """Every answer. A prompt's weight grows with the root of its number of answers only; an assumed answer, which
    has no model's name, weighs little.
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
    """Prose that instructions may be put in front of: answers, and the documents that prompts carry."""
    for prompt in prompts:
        if prompt.task in (TaskType.CODE_GENERATION, TaskType.MATH_REASONING):
            continue
        yield from (Passage(text, prompt.source) for text in prompt.passages)
        body = prompt.text.rpartition("\n\n")[2]
        if body != prompt.text and len(body) > _PASSAGE_CHARS:
            yield Passage(body, prompt.source)


def capped(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """At most `SOURCE_CAP` prompts a source, drawn by `seed`, so that a large source does not set a type's wording."""
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
    """Sources that are left out together, `GROUPS` of them: one run serves several, and each source sees a little less
    than all the others. Sources of one type go to different groups, so that no type is lost with them."""
    first = {prompt.source: str(prompt.task) for prompt in reversed(typed)}
    order = sorted(first, key=lambda source: (first[source], source))
    return [frozenset(order[start::GROUPS]) for start in range(GROUPS)]
