"""Recorded workflows of agents as the requests that an agent would send: one chat for each answer of a model.

A file has one workflow a line: tau-bench's customer service, BFCL's calls of functions over several turns, Who&When's
group chats, or others of the same form. In a group chat each agent has a system prompt of its own and reads the others'
messages as a user's; what a person or a terminal says is no answer of a model.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAU_BENCH, BFCL, WHO_AND_WHEN = "tau-bench", "BFCL", "Who&When"
FILES = {
    TAU_BENCH: "sierra-research_tau-bench.jsonl.gz",
    BFCL: "ShishirPatil_gorilla_bfcl.jsonl.gz",
    WHO_AND_WHEN: "ag2ai_Agents_Failure_Attribution.jsonl.gz",
}
_CHAT_ROLES = frozenset({"user", "assistant", "tool", "system"})
_NO_MODEL = frozenset({"human", "Computer_terminal"})

ChatMessage = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkflowCall:
    """One request of a workflow: the messages of its body, the names of its tools, and the tokens of its answer."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[str, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Workflow:
    """The requests of one job in their order."""

    id: str
    corpus: str
    calls: tuple[WorkflowCall, ...]


def read_workflows(data: Path, *corpora: str) -> list[Workflow]:
    """Reads the workflows of some corpora, of all without names, from the folder with `agentic/`. Raises
    FileNotFoundError if it lacks a file."""
    return [found for corpus in corpora or FILES for found in _read(data / "agentic", corpus)]


def workflows_at(path: Path) -> list[Workflow]:
    """Reads all workflows of a file of JSON lines, plain or gzipped, or of those of a folder. Raises ValueError if
    there is none whose answers have lengths, or a file cannot be read."""
    paths = [path] if path.is_file() else sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    found = [workflow for each in paths for workflow in _read_file(each, each.name.split(".")[0])]
    if not found:
        raise ValueError(
            f"{path} holds no workflow: give a file or folder of JSON lines with workflow_id and steps, "
            "whose answers of models have their tokens"
        )
    return found


def _read(folder: Path, corpus: str) -> Iterator[Workflow]:
    return _read_file(folder / FILES[corpus], corpus)


def _read_file(path: Path, corpus: str) -> Iterator[Workflow]:
    """Yields the workflows of a file. One of which the length of an answer is not known is left out."""
    systems: dict[str, str] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            record = json.loads(line)
            name, steps = str(record["workflow_id"]), record["steps"]
            group = any(step["role"] not in _CHAT_ROLES for step in steps)
            calls = _group_chat(record) if group else _chat(record, _system(path.parent, record, systems))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: no workflow with workflow_id and steps ({error!r})") from None
        if calls:
            yield Workflow(name, corpus, tuple(calls))


def _system(folder: Path, record: dict[str, Any], read: dict[str, str]) -> str:
    """Returns the system prompt of a chat: the text beside its file that it refers to, if it does."""
    name = str((record.get("meta") or {}).get("system_prompt_ref") or "")
    if not name:
        return "You call functions to do what the user asks."
    if name not in read:
        path = folder / f"{Path(name).name}.txt"
        read[name] = _text(path if path.exists() else path.with_name(f"{path.name}.gz"))
    return read[name]


def _text(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return str(file.read())


def _chat(record: dict[str, Any], system: str) -> list[WorkflowCall]:
    tools = tuple(record.get("tools") or ())
    messages: list[ChatMessage] = [{"role": "system", "content": system}]
    calls = []
    for number, step in enumerate(record["steps"]):
        if step["role"] == "assistant":
            if step["tokens"] is None:
                return []
            calls.append(WorkflowCall(tuple(messages), tools, max(1, step["tokens"])))
        messages.append(_message(step, number))
    return calls


def _message(step: dict[str, Any], number: int) -> ChatMessage:
    message: ChatMessage = {"role": step["role"], "content": step["content"]}
    if step.get("tool_calls"):
        message["tool_calls"] = [
            {"id": f"call_{number}_{i}", "type": "function", "function": call}
            for i, call in enumerate(step["tool_calls"])
        ]
    if step["role"] == "tool":
        message["tool_call_id"] = f"call_{number - 1}_0"
    return message


def _group_chat(record: dict[str, Any]) -> list[WorkflowCall]:
    """The question comes first, as a user's message; a later message of a person is a user's, too."""
    task: ChatMessage = {"role": "user", "content": record["question"]}
    calls: list[WorkflowCall] = []
    steps = record["steps"]
    for number, step in enumerate(steps):
        agent = _agent(step)
        if agent in _NO_MODEL:
            continue
        before = [
            {"role": "assistant", "content": other["content"]}
            if _agent(other) == agent
            else {"role": "user", "name": _agent(other), "content": other["content"]}
            for other in steps[:number]
        ]
        system = {"role": "system", "content": f"You are {agent}, one of several agents that solve a task together."}
        calls.append(WorkflowCall((system, task, *before), (), max(1, step["tokens"] or 1)))
    return calls


def _agent(step: dict[str, Any]) -> str:
    return str(step["role"]).split(" (")[0]
