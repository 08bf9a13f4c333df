"""Files with a trained model's outputs for a workload: they are computed once, because the floating-point results of
trained models differ between CPUs.

Such a file is CSV with the columns `id,task,output_tokens,output_tokens_p90`, after a line with the workload's
fingerprint and the model's version.
"""

import csv
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Backend, PromptView
from hmas.sim.workload import OfferedRequest, Workload

BATCH = 32
HEADER = ("id", "task", "output_tokens", "output_tokens_p90")


def fingerprint(workload: Workload) -> str:
    """Returns a digest of the ids, prompt lengths and tenants of a workload's requests, by which a file of model
    outputs is matched to its workload."""
    digest = sha256()
    for r in workload.requests:
        digest.update(f"{r.id} {r.request.prompt_tokens} {r.request.tenant}\n".encode())
    return digest.hexdigest()[:32]


def record(workload: Workload, backend: Backend, path: Path) -> int:
    """Writes the estimates of a perception backend for every request to the file `path`. Returns how many requests the
    backend had an estimate for."""
    rows = []
    for start in range(0, len(workload.requests), BATCH):
        batch = workload.requests[start : start + BATCH]
        for offered, estimate in zip(batch, backend.estimate([_view(r) for r in batch]), strict=True):
            if estimate is not None:
                median, p90 = round(estimate.output_tokens, 2), round(estimate.output_tokens_p90, 2)
                rows.append((offered.id, estimate.task.value, median, p90))
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(f"# {fingerprint(workload)} {backend.version}\n")
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(rows)
    return len(rows)


def _view(offered: OfferedRequest) -> PromptView:
    request = offered.request
    return PromptView(
        text=offered.prompt,
        prompt_tokens=request.prompt_tokens,
        model=request.model,
        tenant=request.tenant,
        max_tokens=request.max_tokens,
    )


def attach(workload: Workload, path: Path) -> Workload:
    """Returns the workload with the model outputs that were recorded for it in the file `path`. Raises ValueError if
    they were recorded for another workload."""
    with path.open(newline="", encoding="utf-8") as file:
        marked = file.readline().split()
        if len(marked) < 2 or marked[1] != fingerprint(workload):
            raise ValueError(
                f"{path} holds model outputs for another workload: record them for this one with "
                "`python -m experiments record`"
            )
        found = {
            row["id"]: (TaskType(row["task"]), float(row["output_tokens"]), float(row["output_tokens_p90"]))
            for row in csv.DictReader(file)
        }
    return replace(workload, requests=tuple(replace(r, recorded=found.get(r.id)) for r in workload.requests))
