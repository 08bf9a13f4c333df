"""Stages of recorded workflows with what is known of each when it comes: numbers, and three texts.

The corpora are those of `hmas_loadgen.workflows.recorded`. A stage's task is what its workflow was run for: runs of one
task, and BFCL's variants of one, are never on both sides of a split by task.
"""

import gzip
import json
import re
from dataclasses import dataclass, field
from math import log1p
from pathlib import Path
from typing import Any
from zlib import crc32

from hmas_loadgen.workflows.recorded import BFCL, FILES, TAU_BENCH, WHO_AND_WHEN

CORPORA = (TAU_BENCH, BFCL, WHO_AND_WHEN)
SYSTEM_TOKENS = {TAU_BENCH: 1400, BFCL: 300, WHO_AND_WHEN: 300}  # of the prompt before the first message
MOST_CHARS = 2000  # of a text that is read
_NO_MODEL = frozenset({"human", "Computer_terminal"})
_ID = re.compile(r"\b(?=\w*\d)[A-Za-z0-9_]{5,}\b")
_CUES = (
    "yes",
    "thank",
    "error",
    "proceed",
    "confirm",
    "verif",
    "final",
    "next",
    "all",
    "cancel",
    "terminate",
    "###stop",
)


@dataclass(slots=True)
class RecordedStage:
    """`numbers` are read by trees, `texts` are the last message, the last words of a model and those of a user. `order`
    is its place in time: runs of all tasks one after the other. `left`: prompt and output tokens of the stages after
    it."""

    corpus: str
    job: str
    task: str
    agent: int
    index: int
    order: tuple[int, str, int]
    prompt_tokens: int
    output_tokens: int
    answered: int
    has_tools: bool
    calls_tool: bool
    numbers: list[float]
    texts: tuple[str, str, str]
    left: tuple[int, int] = field(default=(0, 0))


def read_stages(folder: Path) -> list[list[RecordedStage]]:
    """Reads the workflows of the folder's `agentic/`; a corpus whose file is not there is left out."""
    jobs = []
    for corpus in CORPORA:
        path = folder / "agentic" / FILES[corpus]
        if path.is_file():
            with gzip.open(path, "rt", encoding="utf-8") as lines:
                jobs += [stages for line in lines if (stages := _stages(corpus, json.loads(line)))]
    if not jobs:
        raise FileNotFoundError(f"{folder / 'agentic'} has none of {', '.join(FILES.values())}")
    return jobs


def _stages(corpus: str, record: dict[str, Any]) -> list[RecordedStage]:
    task, run = _task(corpus, record)
    steps, tools = record["steps"], tuple(record["tools"] or ())
    said = SYSTEM_TOKENS[corpus]
    found: list[RecordedStage] = []
    for number, step in enumerate(steps):
        tokens = step["tokens"] or 0
        if _is_model(corpus, step):
            agent = _digest(corpus, _agent(step) if corpus == WHO_AND_WHEN else "")
            found.append(
                RecordedStage(
                    corpus=corpus, job=record["workflow_id"], task=f"{corpus} {task}", agent=agent, index=len(found),
                    order=(run, task, number), prompt_tokens=said, output_tokens=max(1, tokens),
                    answered=sum(stage.output_tokens for stage in found), has_tools=bool(tools),
                    calls_tool=bool(step.get("tool_calls")) or (corpus == BFCL and bool(step["content"])),
                    numbers=_numbers(corpus, record, steps[:number], found, agent, said, tools),
                    texts=_texts(corpus, record, steps[:number]),
                )
            )  # fmt: skip
        said += tokens
    prompt = output = 0
    for stage in reversed(found):
        stage.left = prompt, output
        prompt, output = prompt + stage.prompt_tokens, output + stage.output_tokens
    return found


def _task(corpus: str, record: dict[str, Any]) -> tuple[str, int]:
    name = record["workflow_id"]
    if corpus == TAU_BENCH:
        *_, task, run = name.split("-")
        return task, int(run)
    if corpus == BFCL:
        return name.rsplit("_", 1)[-1], int("miss_param" in name)
    return record["question"], 0


def _agent(step: dict[str, Any]) -> str:
    return str(step["role"]).split(" (")[0]


def _is_model(corpus: str, step: dict[str, Any]) -> bool:
    return _agent(step) not in _NO_MODEL if corpus == WHO_AND_WHEN else step["role"] == "assistant"


def _digest(*parts: str) -> int:
    return crc32("\0".join(parts).encode())


def _texts(corpus: str, record: dict[str, Any], before: list[dict[str, Any]]) -> tuple[str, str, str]:
    def last(kind: Any) -> str:
        return next((step["content"][:MOST_CHARS] for step in reversed(before) if step["content"] and kind(step)), "")

    end = before[-1] if before else {"role": "user", "content": record["question"] or ""}
    title = f"{_agent(end)} {end.get('name') or ''} "
    user = last(lambda step: step["role"] == "user") or (record["question"] or "")[:MOST_CHARS]
    return title + (end["content"] or "")[:MOST_CHARS], last(lambda step: _is_model(corpus, step)), user


def _numbers(
    corpus: str, record: dict[str, Any], before: list[dict[str, Any]], own: list[RecordedStage], agent: int, said: int,
    tools: tuple[str, ...],
) -> list[float]:  # fmt: skip
    """Numbers of a stage: its place, sizes, the calls of tools so far, names that were told and not yet used, cues."""
    end: dict[str, Any] = before[-1] if before else {"role": "user", "content": record["question"] or "", "tokens": 0}
    text, low = end["content"] or "", (end["content"] or "").lower()
    calls = [(c["name"], c["arguments"]) for step in before for c in step.get("tool_calls") or ()]
    results = [step for step in before if step["role"] == "tool"]
    users = [step["content"] or "" for step in before if step["role"] == "user"]
    asked = max((i for i, step in enumerate(before) if step["role"] == "user"), default=0)
    since = [step for step in before[asked + 1 :] if step["role"] == "tool"]
    used = {name for _, arguments in calls for name in _ID.findall(arguments)}
    told = set(_ID.findall(results[-1]["content"] or "")) if results else set()
    wanted = set(_ID.findall(users[-1])) if users else set()
    words = next((s["content"] or "" for s in reversed(before) if _is_model(corpus, s) and not s.get("tool_calls")), "")
    lengths = [log1p(stage.output_tokens) for stage in own]
    first = users[0] if users else record["question"] or ""
    same = sum(stage.agent == agent for stage in own)
    repeated = next((i for i, call in enumerate(reversed(calls)) if call[0] != calls[-1][0]), len(calls))
    return [
        CORPORA.index(corpus), agent % 997, _digest(_agent(end)) % 997, _digest(str(end.get("name"))) % 997,
        _digest(*tools) % 997, len(tools), len(own), same, len({stage.agent for stage in own}), log1p(said),
        log1p(sum(stage.output_tokens for stage in own)), lengths[-1] if lengths else -1.0,
        sum(lengths) / len(lengths) if lengths else -1.0, log1p(end["tokens"] or 0), log1p(len(text)),
        log1p(len(first)), first.count(".") + first.count(","), len(users), len(results), len(since), len(calls),
        len({name for name, _ in calls}), repeated, len(calls) - len(set(calls)),
        _digest(calls[-1][0]) % 997 if calls else -1, _digest(calls[-2][0]) % 997 if len(calls) > 1 else -1,
        len(told - used), len(told), len(wanted - used), len(wanted), sum(step["tokens"] or 0 for step in since),
        log1p(len(words)), words.count("?"), *(float(cue in words.lower()) for cue in ("yes", "proceed", "confirm")),
        text.count("?"), sum(c.isdigit() for c in text), float(text.startswith("[")), float(not text),
        *(float(cue in low) for cue in _CUES),
    ]  # fmt: skip
