"""Labelled prompts with the true length of an answer, for workloads whose own data are lengths alone.

Only prompts of the test part are drawn, which no artefact that ships was trained or calibrated on: perception's
training holds it apart by prompt id. Only answers of language models count, because a reference answer is not as long
as a model's.
"""

import gzip
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from random import Random

import orjson

from hmas.contracts.request import TaskType
from hmas_lab.labelled import REFERENCES, SPLIT_SEED, part_of

FACTOR = 1.5  # an answer is at most so many times as long, or as short, as the length that it stands for
NEAREST = 32  # prompts with answers of the nearest length ...
ALIKE = 8  # ... and of these the nearest in their own length, of which one is drawn


@dataclass(frozen=True, slots=True)
class AnsweredPrompt:
    """A prompt of `tokens` tokens that has the id `group`, and the length of one answer to it in tokens."""

    group: str
    task: TaskType
    text: str
    tokens: int
    output_tokens: int


class AnsweredPrompts:
    """Draws prompts by the length of their answer. `pairs` may hold several answers to a prompt."""

    def __init__(self, pairs: Iterable[AnsweredPrompt]) -> None:
        ordered = sorted(pairs, key=lambda pair: (pair.output_tokens, pair.group))
        self._all = _ByLength(ordered)
        self._by_task = {task: _ByLength([p for p in ordered if p.task is task]) for task in {p.task for p in ordered}}

    def __bool__(self) -> bool:
        return bool(self._by_task)

    def draw(self, output_tokens: int, input_tokens: int, task: TaskType | None, draw: Random) -> AnsweredPrompt | None:
        """Returns a prompt whose answer was about `output_tokens` long, within `FACTOR`: one of the `NEAREST` by that
        length, and of these one of the `ALIKE` whose own length is nearest to `input_tokens`. Every prompt has the same
        chance, however many answers it has. `task` None allows all types. Returns None if there is no such prompt."""
        held = self._all if task is None else self._by_task.get(task)
        near = held.near(output_tokens) if held else []
        near.sort(key=lambda pair: abs(log(pair.tokens / input_tokens)))
        return draw.choice(near[:ALIKE]) if near else None


class _ByLength:
    """Answered prompts in order of the answers' lengths."""

    def __init__(self, pairs: Sequence[AnsweredPrompt]) -> None:
        self._pairs = pairs
        self._lengths = [pair.output_tokens for pair in pairs]

    def near(self, output_tokens: int) -> list[AnsweredPrompt]:
        """Returns the prompts with the nearest answers, at most `NEAREST`, each once with its nearest answer."""
        found: dict[str, AnsweredPrompt] = {}
        above = bisect_left(self._lengths, output_tokens)
        below = above - 1
        while len(found) < NEAREST:
            up = self._lengths[above] / output_tokens if above < len(self._pairs) else FACTOR + 1
            down = output_tokens / self._lengths[below] if below >= 0 else FACTOR + 1
            if min(up, down) > FACTOR:
                break
            place = above if up <= down else below
            found.setdefault(self._pairs[place].group, self._pairs[place])
            if place == above:
                above += 1
            else:
                below -= 1
        return list(found.values())


@cache
def held_apart(folder: Path) -> AnsweredPrompts:
    """Reads the test part of the labelled prompts in `folder`. Raises ValueError if it has none."""
    pairs = AnsweredPrompts(answered(folder))
    if not pairs:
        raise ValueError(f"no file *.jsonl.gz in {folder} holds answered prompts of the test part")
    return pairs


def answered(folder: Path) -> list[AnsweredPrompt]:
    """Returns one pair for every answer of a language model to a prompt of the test part whose task type is known. As
    in training, a text that has several ids belongs to the part of its first one."""
    groups: dict[str, str] = {}
    found: list[AnsweredPrompt] = []
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rb") as file:
            for line in file:
                row = orjson.loads(line)
                text = row["prompt"]
                group = groups.setdefault(text, row["prompt_id"])
                if not row["task_type"] or row["response_model"] in REFERENCES or not row["response_tokens"]:
                    continue
                if part_of(group, SPLIT_SEED) == "test":
                    tokens = max(1, row["prompt_tokens"]), row["response_tokens"]
                    found.append(AnsweredPrompt(group, TaskType(row["task_type"]), text, *tokens))
    return found
