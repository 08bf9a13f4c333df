"""Recorded workflows of agents as the requests that an agent would send: one chat for each answer of a model.

The folder's `agentic/` has one workflow a line: tau-bench's customer service, BFCL's calls of functions over several
turns, and Who&When's group chats. In a group chat each agent has a system prompt of its own and reads the others'
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
POLICY_FILE = "tau_airline_policy.txt.gz"
_NO_MODEL = frozenset({"human", "Computer_terminal"})

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkflowCall:
    """One request of a workflow: the messages of its body, the names of its tools, and the tokens of its answer."""

    messages: tuple[Message, ...]
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


def _read(folder: Path, corpus: str) -> Iterator[Workflow]:
    with gzip.open(folder / FILES[corpus], "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    if corpus == TAU_BENCH:
        with gzip.open(folder / POLICY_FILE, "rt", encoding="utf-8") as file:
            policy = file.read()
    for record in records:
        if corpus == WHO_AND_WHEN:
            calls = _group_chat(record)
        else:
            calls = _chat(record, policy if corpus == TAU_BENCH else "You call functions to do what the user asks.")
        if calls:
            yield Workflow(record["workflow_id"], corpus, tuple(calls))


def _chat(record: dict[str, Any], system: str) -> list[WorkflowCall]:
    tools = tuple(record["tools"] or ())
    messages: list[Message] = [{"role": "system", "content": system}]
    calls = []
    for number, step in enumerate(record["steps"]):
        if step["role"] == "assistant":
            calls.append(WorkflowCall(tuple(messages), tools, max(1, step["tokens"] or 1)))
        messages.append(_message(step, number))
    return calls


def _message(step: dict[str, Any], number: int) -> Message:
    message: Message = {"role": step["role"], "content": step["content"]}
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
    task: Message = {"role": "user", "content": record["question"]}
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
