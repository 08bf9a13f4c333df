"""Labelled prompts of `data/prompts`: reading, joining rows into prompts, splitting by prompt id."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hmas.contracts.request import TaskType

Part = Literal["train", "validation", "test"]
# Reference texts: written by people, or tool calls written by hand.
REFERENCES = frozenset({None, "human", "gold tool calls"})
VALIDATION_SHARE = 0.1
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class CorpusAnswer:
    """One answer of a language model: who wrote it, and its length in tokens."""

    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Passage:
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt text. `group` is what a split must not cut: the prompt id, shared by prompts of equal text.

    `task` is None where no source says it. `passages` are texts written about it, material for other prompts;
    `made_of` are the sources of those that a synthetic prompt carries.
    """

    group: str
    text: str
    tokens: int
    task: TaskType | None
    source: str
    answers: tuple[CorpusAnswer, ...]
    passages: tuple[str, ...] = ()
    made_of: frozenset[str] = frozenset()


def prompt_files(folder: Path) -> list[Path]:
    """The prompt files of a data folder (`data/` or `data/prompts/`), in order. Raises FileNotFoundError."""
    for place in (folder / "prompts", folder):
        files = sorted(place.glob("*.jsonl.gz"))
        if files:
            return files
    raise FileNotFoundError(f"no *.jsonl.gz prompt files in {folder} or {folder / 'prompts'}")


def checksum(files: Iterable[Path]) -> str:
    """SHA-256 over names and contents, in the order given."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def read_prompts(files: Sequence[Path]) -> list[Prompt]:
    """Every distinct prompt with all its answers. Raises ValueError naming file and line of a bad row."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(files):
        rows.setdefault(row["prompt"], []).append(row)
    return [_prompt(text, found) for text, found in rows.items()]


def _rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for file in files:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                    row["prompt_id"], row["prompt"], row["prompt_tokens"], row["source"], row["task_type"]
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{file}:{number}: not a prompt row: {error!r}") from error
                yield row


def _prompt(text: str, rows: list[dict[str, Any]]) -> Prompt:
    typed = [row["task_type"] for row in rows if row["task_type"]]
    answers = tuple(
        CorpusAnswer(row["response_model"], int(row["response_tokens"]))
        for row in rows
        if row.get("response_model") not in REFERENCES and row.get("response_tokens")
    )
    passages = tuple(row["response"] for row in rows[:1] if row.get("response"))
    task = TaskType(typed[0]) if typed else None
    first = rows[0]
    return Prompt(first["prompt_id"], text, first["prompt_tokens"], task, first["source"], answers, passages)


def part_of(group: str, seed: int) -> Part:
    """Where a prompt id belongs: a hash of it decides, so that more data never moves a prompt."""
    share = int.from_bytes(hashlib.sha256(f"{seed}:{group}".encode()).digest()[:8], "big") / 2**64
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"


def split(prompts: Iterable[Prompt], seed: int) -> dict[Part, list[Prompt]]:
    parts: dict[Part, list[Prompt]] = {"train": [], "validation": [], "test": []}
    for prompt in prompts:
        parts[part_of(prompt.group, seed)].append(prompt)
    return parts
