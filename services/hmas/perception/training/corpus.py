"""The labelled prompts of `data/prompts`: reads them, joins rows into prompts, and splits them by prompt id."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hmas.contracts.request import TaskType

Part = Literal["train", "validation", "test"]
# Values of `response_model` that mark a reference text, which no language model wrote.
REFERENCES = frozenset({None, "human", "gold tool calls"})
VALIDATION_SHARE = 0.1
TEST_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class CorpusAnswer:
    """One answer of a language model: the model's name ("" for an assumed answer) and the answer's length in tokens."""

    model: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Passage:
    text: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt text with its task type and answers.

    `group` is the prompt id, shared by prompts of equal text; a split never separates a group. `task` is None if the
    source does not state it. `passages` are texts of answers, from which synthetic prompts are made; `made_of` names
    the sources of the passages in a synthetic prompt.
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
    """Returns the sorted prompt files of a folder (`data/` or `data/prompts/`). Raises FileNotFoundError if none."""
    for place in (folder / "prompts", folder):
        files = sorted(place.glob("*.jsonl.gz"))
        if files:
            return files
    raise FileNotFoundError(
        f"no *.jsonl.gz prompt files in {folder} or {folder / 'prompts'}: name the project's data folder"
    )


def checksum(files: Iterable[Path]) -> str:
    """Returns the SHA-256 (hexadecimal) over the files' names and contents, in the given order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def read_prompts(files: Sequence[Path]) -> list[Prompt]:
    """Returns every distinct prompt with all its answers. Raises ValueError that names file and line of a bad row."""
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
                    raise ValueError(
                        f"{file}:{number}: not a prompt row (a JSON object with prompt_id, prompt, ...): {error!r}"
                    ) from error
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
    return Prompt(
        group=first["prompt_id"],
        text=text,
        tokens=first["prompt_tokens"],
        task=task,
        source=first["source"],
        answers=answers,
        passages=passages,
    )


def part_of(group: str, seed: int) -> Part:
    """Returns the part to which a prompt id belongs; a hash decides, so that adding data never moves a prompt."""
    share = int.from_bytes(hashlib.sha256(f"{seed}:{group}".encode()).digest()[:8], "big") / 2**64
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"


def split(prompts: Iterable[Prompt], seed: int) -> dict[Part, list[Prompt]]:
    parts: dict[Part, list[Prompt]] = {"train": [], "validation": [], "test": []}
    for prompt in prompts:
        parts[part_of(prompt.group, seed)].append(prompt)
    return parts
