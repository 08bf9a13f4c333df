"""What the perception that ships says of the prompts of a workload. It is asked once for each workload, because it
takes longer than the simulated run, and because the floating-point results of trained models differ between CPUs."""

import csv
import os
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from hmas.contracts.request import TaskType
from hmas.installation import install_command
from hmas.laws.tokens import text_tokens
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.sim.workload import OfferedRequest, Workload

BATCH = 32
HEADER = ("id", "task", "confidence", "output_tokens", "output_tokens_p90")
FOLDER = Path("out/perceived")


@cache
def shipped_backend() -> Backend:
    """Returns perception's trained backend. Raises ValueError if its packages are missing."""
    try:
        from hmas.perception.backends.model import ModelBackend
    except ImportError as error:
        raise ValueError(
            f"the perception that ships needs a package that is not installed ({error.name}): "
            f"{install_command('sim')}, or simulate hmas-noisy, whose predictions are made from the truth"
        ) from error
    return ModelBackend()


def perceived(workload: Workload, backend: Backend | None = None, folder: Path | None = None) -> Workload:
    """Returns the workload with what `backend`, by default the one that ships, says of each request's prompt. With
    `folder`, answers are kept there as CSV, one file for each backend's version and workload."""
    backend = backend or shipped_backend()
    if folder is None:
        return _with(workload, _ask(workload, backend))
    path = folder / f"{backend.version}-{fingerprint(workload)}.csv"
    if not path.exists():
        _write(_ask(workload, backend), path)
    return _with(workload, _read(path))


def fingerprint(workload: Workload) -> str:
    """Returns a digest of all that perception is told of a workload's requests."""
    digest = sha256()
    for r in workload.requests:
        digest.update(repr((r.id, view(r))).encode())
    return digest.hexdigest()[:32]


def view(offered: OfferedRequest) -> PromptView:
    """Returns what perception may see of a request. As live, it counts the tokens of the text at hand; a trace's own
    count, by which the engine is loaded, may be another."""
    request, text = offered.request, offered.prompt
    return PromptView(
        text=text,
        prompt_tokens=text_tokens(text) if text else request.prompt_tokens,
        model=request.model,
        tenant=request.tenant,
        max_tokens=request.max_tokens,
    )


def _ask(workload: Workload, backend: Backend) -> dict[str, Estimate]:
    """Asks for each different view once, in batches."""
    views = {r.id: view(r) for r in workload.requests}
    distinct = list(dict.fromkeys(views.values()))
    answers: dict[PromptView, Estimate | None] = {}
    for start in range(0, len(distinct), BATCH):
        batch = distinct[start : start + BATCH]
        answers |= zip(batch, backend.estimate(batch), strict=True)
    return {name: estimate for name, seen in views.items() if (estimate := answers[seen]) is not None}


def _with(workload: Workload, found: dict[str, Estimate]) -> Workload:
    return replace(workload, requests=tuple(replace(r, recorded=_fields(found.get(r.id))) for r in workload.requests))


def _fields(e: Estimate | None) -> tuple[TaskType, float, float, float] | None:
    return None if e is None else (e.task, e.confidence, e.output_tokens, e.output_tokens_p90)


def _write(found: dict[str, Estimate], path: Path) -> None:
    """Writes a file whole or not at all: several runs may want the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for name, e in found.items():
            writer.writerow((name, e.task.value, repr(e.confidence), repr(e.output_tokens), repr(e.output_tokens_p90)))
    part.replace(path)


def _read(path: Path) -> dict[str, Estimate]:
    with path.open(newline="", encoding="utf-8") as file:
        return {
            row["id"]: Estimate(
                TaskType(row["task"]),
                float(row["confidence"]),
                float(row["output_tokens"]),
                float(row["output_tokens_p90"]),
            )
            for row in csv.DictReader(file)
        }
