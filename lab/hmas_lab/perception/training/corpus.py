"""The labelled prompts of `data/prompts` and the turns of `data/agentic`: reads them, joins rows into prompts, and
splits them by prompt id."""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hmas.contracts.request import TaskType
from hmas_lab.labelled import REFERENCES, TOOL_CALLS, Part, part_of


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
    the sources of the passages in a synthetic prompt. `calls_tool` says whether an agent answered with a call of a tool
    (None: not known).
    """

    group: str
    text: str
    tokens: int
    task: TaskType | None
    source: str
    answers: tuple[CorpusAnswer, ...]
    passages: tuple[str, ...] = ()
    made_of: frozenset[str] = frozenset()
    calls_tool: bool | None = None


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
    for file, number, row in _lines(files, "prompt row"):
        try:
            row["prompt_id"], row["prompt"], row["prompt_tokens"], row["source"], row["task_type"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"{file}:{number}: not a prompt row (a JSON object with prompt_id, prompt, ...): {error!r}"
            ) from error
        yield row


def _lines(files: Sequence[Path], what: str) -> Iterator[tuple[Path, int, Any]]:
    for file in files:
        opener = gzip.open if file.suffix == ".gz" else open
        with opener(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield file, number, json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{file}:{number}: not a {what} (a JSON object): {error!r}") from error


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
    called = any(row.get("response_model") == TOOL_CALLS for row in rows)
    return Prompt(
        group=first["prompt_id"],
        text=text,
        tokens=first["prompt_tokens"],
        task=task,
        source=first["source"],
        answers=answers,
        passages=passages,
        calls_tool=True if called else False if answers else None,
    )


def workflow_files(folder: Path) -> list[Path]:
    """Returns the sorted files of agents' workflows of a data folder; none if it has no `agentic/`."""
    return sorted((folder / "agentic").glob("*.jsonl.gz"))


def read_turns(files: Sequence[Path]) -> list[Prompt]:
    """Returns the distinct turns of users to agents that have tools, each with whether the agent answered with a call.

    A turn has no task type and no answer of a known length. Turns of repetitions of one task share a group.
    Raises ValueError that names file and line of a bad row.
    """
    found: dict[str, Prompt] = {}
    for file, number, row in _lines(files, "workflow"):
        try:
            turns = list(_turns(row))
            group = (row["meta"] or {}).get("task_id", row["workflow_id"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}:{number}: not a workflow (a JSON object with steps, ...): {error!r}") from error
        for text, calls in turns:
            found.setdefault(
                text,
                Prompt(
                    group=f"{row['source']}:{group}",
                    text=text,
                    tokens=max(1, len(text) * 10 // 44),
                    task=None,
                    source=row["source"],
                    answers=(),
                    calls_tool=calls,
                ),
            )
    return list(found.values())


def _turns(row: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yields each turn of a user that an agent with tools answers, and whether the answer is a call."""
    if not row["tools"]:
        return
    for step, after in pairwise(row["steps"]):
        if step["role"] != "user":
            continue
        # A source that cuts its messages still gives the question whole.
        text = row["question"] if step["truncated"] else step["content"]
        calls = after["role"] == "tool" or bool(after.get("tool_calls")) or bool(after.get("gold") and after["content"])
        if text:
            yield text, calls


def split(prompts: Iterable[Prompt], seed: int) -> dict[Part, list[Prompt]]:
    parts: dict[Part, list[Prompt]] = {"train": [], "validation": [], "test": []}
    for prompt in prompts:
        parts[part_of(prompt.group, seed)].append(prompt)
    return parts
