"""Stages of recorded workflows, with what was left of their jobs after each.

The corpora are those of `hmas_loadgen.workflows.recorded`. A stage's task is what its workflow was run for: runs of one
task, and BFCL's variants of one, are never on both sides of a split by task.
"""

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from hmas_loadgen.workflows.recorded import BFCL, FILES, TAU_BENCH, WHO_AND_WHEN

CORPORA = (TAU_BENCH, BFCL, WHO_AND_WHEN)
SYSTEM_TOKENS = {TAU_BENCH: 1400, BFCL: 300, WHO_AND_WHEN: 300}  # of the prompt before the first message
_NO_MODEL = frozenset({"human", "Computer_terminal"})


@dataclass(slots=True)
class RecordedStage:
    """`agent` is a digest; `left`: prompt and output tokens of the stages after it."""

    corpus: str
    task: str
    agent: int
    index: int
    prompt_tokens: int
    output_tokens: int
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
    task, said = _task(corpus, record), SYSTEM_TOKENS[corpus]
    found: list[RecordedStage] = []
    for step in record["steps"]:
        tokens = step["tokens"] or 0
        if _is_model(corpus, step):
            agent = _digest(corpus, _agent(step) if corpus == WHO_AND_WHEN else "")
            found.append(RecordedStage(corpus, f"{corpus} {task}", agent, len(found), said, max(1, tokens)))
        said += tokens
    prompt = output = 0
    for stage in reversed(found):
        stage.left = prompt, output
        prompt, output = prompt + stage.prompt_tokens, output + stage.output_tokens
    return found


def _task(corpus: str, record: dict[str, Any]) -> str:
    name = record["workflow_id"]
    if corpus == TAU_BENCH:
        return str(name.split("-")[-2])
    return str(name.rsplit("_", 1)[-1] if corpus == BFCL else record["question"])


def _agent(step: dict[str, Any]) -> str:
    return str(step["role"]).split(" (")[0]


def _is_model(corpus: str, step: dict[str, Any]) -> bool:
    return _agent(step) not in _NO_MODEL if corpus == WHO_AND_WHEN else step["role"] == "assistant"


def _digest(*parts: str) -> int:
    return crc32("\0".join(parts).encode())
