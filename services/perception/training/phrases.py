"""Synthetic prompts from `phrases.yaml`: what a task type is, apart from the wording of any one data set.

Sources leak their labels (each has one fixed instruction, one format); these prompts, over passages of the training
part, teach the type itself. They are never evaluated on.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from services.contracts.request import TaskType
from services.perception.training.corpus import Prompt

SOURCE = "synthetic"
_FILE = Path(__file__).with_name("phrases.yaml")
_SLOT = re.compile(r"\{(\w+)\}")
_CHOICE = re.compile(r"<([^<>]*\|[^<>]*)>")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+")
TEXT_CHARS = (80, 2400)
SHORT_CHARS = (25, 220)


class PhraseBook:
    """Draws prompts of a type. `passages` is the material for `{text}` and `{short_text}`; it must not be empty."""

    def __init__(self, passages: Sequence[str], rng: random.Random) -> None:
        book = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
        self._slots: dict[str, list[str]] = book["slots"]
        self._types = {TaskType(name): list(lines) for name, lines in book["types"].items()}
        self._passages = [text for passage in passages if len(text := passage.strip()) >= SHORT_CHARS[0]]
        self._rng = rng

    def draw(self, count: int) -> list[Prompt]:
        """`count` prompts of every type."""
        return [self._prompt(task, index) for task in self._types for index in range(count)]

    def wording(self, task: TaskType) -> str:
        """One instruction of the type."""
        return self._fill(self._rng.choice(self._types[task]))

    def _prompt(self, task: TaskType, index: int) -> Prompt:
        text = self._style(self.wording(task))
        return Prompt(f"{SOURCE}-{task}-{index}", text, max(1, len(text) * 10 // 44), task, SOURCE, ())

    def _fill(self, line: str) -> str:
        """Choices inside out, then slots; a slot's entry may hold slots and choices of its own."""
        while match := _CHOICE.search(line):
            line = line[: match.start()] + self._rng.choice(match.group(1).split("|")) + line[match.end() :]
        return _SLOT.sub(lambda slot: self._slot(slot.group(1)), line)

    def _slot(self, name: str) -> str:
        if name == "text":
            return self._text(*TEXT_CHARS)
        if name == "short_text":
            return self._text(*SHORT_CHARS)
        return self._fill(self._rng.choice(self._slots[name]))

    def _text(self, least: int, most: int) -> str:
        """Whole sentences of one passage, from a random one on, log-uniform in length."""
        sentences = _SENTENCE.split(self._rng.choice(self._passages))
        start = self._rng.randrange(len(sentences))
        wanted = least * (most / least) ** self._rng.random()
        text = ""
        for sentence in sentences[start:] or sentences:
            text = f"{text} {sentence}".strip()
            if len(text) >= wanted:
                break
        return text[:most]

    def _style(self, text: str) -> str:
        """People type lower case, forget full stops, are polite."""
        draw = self._rng.random()
        if draw < 0.12:
            text = text.lower()
        elif draw < 0.18:
            text = text.rstrip(".")
        elif draw < 0.24:
            text = f"{self._rng.choice(['Please help.', 'Hi!', 'Hello,', 'Task:', 'Instruction:'])} {text}"
        return text
