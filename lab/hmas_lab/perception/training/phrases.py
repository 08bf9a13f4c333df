"""Synthetic prompts from `phrases.yaml`, which teach a task type independently of any one data set's wording.

Data sets leak their labels, because each has one fixed instruction and format; the synthetic prompts use passages of
the training part with many wordings instead. They are never used for evaluation.
"""

import math
import random
import re
from collections.abc import Sequence
from pathlib import Path

import yaml

from hmas.contracts.request import TaskType
from hmas.perception.agent.features import stated_length
from hmas_lab.perception.training.corpus import CorpusAnswer, Passage, Prompt

SOURCE = "synthetic"
FILE = Path(__file__).with_name("phrases.yaml")
_SLOT = re.compile(r"\{(\w+)\}")
_CHOICE = re.compile(r"<([^<>]*\|[^<>]*)>")
_SENTENCE = re.compile(r"(?<=[.!?。])\s+")
TEXT_CHARS = (80, 2400)
SHORT_CHARS = (25, 220)
# Task types whose answers are as long as requested; in the corpus few prompts but essays and e-mails request a length.
SIZED_TYPES = frozenset(
    {
        TaskType.QA,
        TaskType.INSTRUCTION_FOLLOWING,
        TaskType.SUMMARIZATION,
        TaskType.LETTER_DRAFTING,
        TaskType.ESSAY_GENERATION,
        TaskType.LONG_FORM_GENERATION,
        TaskType.RESEARCH_AND_COMMUNICATION,
    }
)
SIZED = 0.25
SIZES = (
    ("Write about {n} words.", 15, 3000),
    ("Use {n} words.", 15, 3000),
    ("Answer in at most {n} words.", 15, 500),
    ("The answer should have {n} sentences.", 1, 30),
    ("Limit: {n} tokens.", 20, 3000),
    ("Write {n} paragraphs.", 1, 12),
    ("About {n} pages.", 1, 5),
    ("{n}字左右。", 50, 3000),
)
OBEYED = 0.25  # sigma of the log-normal spread of an answer's length around the requested one
# Beyond so many tokens an answer grows with this power of the requested length.
UNDERSHOOT_TOKENS, UNDERSHOOT = 1000.0, 0.6
FRAMED = 0.2
FRAMES = (
    "### Instruction:\n{text}\n\n### Response:",
    "Definition: In this task, you are given an input. {text}\noutput:",
    "You are a helpful assistant. {text}",
    "[Task]: {text}\n[Requirements]:\n1. Follow the instructions closely.\n2. Be accurate.",
    "Instructions: {text}\n\nAnswer:",
    "I have a task for you.\n\n{text}\n\nThink it through first.",
    "{text}\n\nMake sure that your response is complete and long enough.",
)


class PhraseBook:
    """Draws synthetic prompts. `passages` are the texts for the slots `{text}` and `{short_text}`, at least one."""

    def __init__(self, passages: Sequence[Passage], rng: random.Random) -> None:
        book = yaml.safe_load(FILE.read_text(encoding="utf-8"))
        self._slots: dict[str, list[str]] = book["slots"]
        self._types = {TaskType(name): list(lines) for name, lines in book["types"].items()}
        self._passages = [passage for passage in passages if len(passage.text.strip()) >= SHORT_CHARS[0]]
        self._used: set[str] = set()  # sources of the passages in the prompt that is being made
        self._rng = rng

    def draw(self, count: int) -> list[Prompt]:
        """Returns `count` synthetic prompts of every task type."""
        return [self._prompt(task, index) for task in self._types for index in range(count)]

    def wording(self, task: TaskType) -> str:
        """Returns one random instruction of a task type."""
        return self._fill(self._rng.choice(self._types[task]))

    def _prompt(self, task: TaskType, index: int) -> Prompt:
        self._used.clear()
        text = self.wording(task)
        answers: tuple[CorpusAnswer, ...] = ()
        if task in SIZED_TYPES and self._rng.random() < SIZED:
            text, answers = self._sized(text)
        text = self._style(text)
        tokens, made_of = max(1, len(text) * 10 // 44), frozenset(self._used)
        return Prompt(
            group=f"{SOURCE}-{task}-{index}",
            text=text,
            tokens=tokens,
            task=task,
            source=SOURCE,
            answers=answers,
            made_of=made_of,
        )

    def _sized(self, text: str) -> tuple[str, tuple[CorpusAnswer, ...]]:
        """Returns the text with a request for a length, and an assumed answer (by no model) of about that length."""
        line, least, most = self._rng.choice(SIZES)
        wish = line.format(n=round(least * (most / least) ** self._rng.random()))
        text = f"{wish} {text}" if self._rng.random() < 0.3 else f"{text} {wish}"
        asked = stated_length(wish)
        likely = asked if asked <= UNDERSHOOT_TOKENS else UNDERSHOOT_TOKENS * (asked / UNDERSHOOT_TOKENS) ** UNDERSHOOT
        return text, (CorpusAnswer("", max(1, round(likely * math.exp(self._rng.gauss(0.0, OBEYED))))),)

    def _fill(self, line: str) -> str:
        """Replaces choices `<a|b>` from the inside out, then slots `{name}`, whose entries may hold both again."""
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
        """Returns whole sentences of one passage from a random start, with a log-uniform length in characters."""
        passage = self._rng.choice(self._passages)
        self._used.add(passage.source)
        sentences = _SENTENCE.split(passage.text.strip())
        start = self._rng.randrange(len(sentences))
        wanted = least * (most / least) ** self._rng.random()
        text = ""
        for sentence in sentences[start:] or sentences:
            text = f"{text} {sentence}".strip()
            if len(text) >= wanted:
                break
        return text[:most]

    def _style(self, text: str) -> str:
        """Varies a prompt as users do (lower case, no full stop, greetings) or wraps it in a frame as programs do."""
        if self._rng.random() < FRAMED:
            return self._rng.choice(FRAMES).format(text=text)
        draw = self._rng.random()
        if draw < 0.12:
            text = text.lower()
        elif draw < 0.18:
            text = text.rstrip(".")
        elif draw < 0.24:
            text = f"{self._rng.choice(['Please help.', 'Hi!', 'Hello,', 'Task:', 'Instruction:'])} {text}"
        return text
