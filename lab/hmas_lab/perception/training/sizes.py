"""`hmas train sizes`: what a tagger of another size would know and cost."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

from hmas.perception.agent.backend import PromptView
from hmas.perception.backends.model import MODEL_FILE, MOST_PER_RUN, ModelBackend
from hmas_lab.perception.evaluation import evaluate_length, evaluate_task, view
from hmas_lab.perception.training.corpus import checksum, prompt_files, read_prompts, split, workflow_files
from hmas_lab.perception.training.loop import TrainingRecipe
from hmas_lab.perception.training.train import train

SIZES_FILE = "sizes.json"
SIZES = ((1, 12, 6), (2, 24, 10), (3, 24, 10), (6, 24, 10))  # layers, word pieces of the head, of the tail
_TIMED, _WARM_UP = 600, 50


def measure(data: Path, out: Path, recipe: TrainingRecipe, report: Callable[[str], None], work: Path) -> Path:
    """Trains a tagger of each of `SIZES` in `work` by the recipe, and writes SIZES_FILE into `out`: quality on the
    validation part, which training does not see, and CPU time. Goes on from what `work` holds."""
    files = prompt_files(data)
    held = split(read_prompts(files), recipe.seed)["validation"]
    rows = []
    for layers, head, tail in SIZES:
        folder = work / f"size-{layers}-{head}-{tail}"
        other = replace(recipe, layers=layers, head_tokens=head, tail_tokens=tail)
        train(data, folder, other, "hmas train sizes", report, folder)
        backend = ModelBackend(folder)
        task, length = evaluate_task(backend, held), evaluate_length(backend, held, model_known=False)
        row: dict[str, Any] = {
            "layers": layers,
            "word_pieces": head + tail,
            "megabytes": (folder / MODEL_FILE).stat().st_size / 1e6,
            "accuracy": task.accuracy,
            "least_of_types": min(share for count, share in task.by_type.values() if count >= 30),
            "length_mae": length.mae,
            "length_log_sd": length.log_sd,
            **cpu_times(backend, [view(prompt) for prompt in held[:_TIMED]]),
        }
        report(str(row))
        rows.append(row)
    path = out / SIZES_FILE
    identity = {"recipe": asdict(recipe), "data_sha256": checksum([*files, *workflow_files(data)])}
    path.write_text(json.dumps({**identity, "sizes": rows}, indent=1, sort_keys=True) + "\n")
    return path


def cpu_times(backend: ModelBackend, views: Sequence[PromptView]) -> dict[str, float]:
    """Returns the CPU time of this thread per request, in ms: the mean in batches of `MOST_PER_RUN`, and the mean and
    98 % quantile of requests alone."""
    backend.predict(views[:_WARM_UP])
    start = thread_time()
    for at in range(0, len(views), MOST_PER_RUN):
        backend.predict(views[at : at + MOST_PER_RUN])
    batched = (thread_time() - start) / len(views)
    alone = []
    for one in views:
        start = thread_time()
        backend.predict([one])
        alone.append(thread_time() - start)
    return {
        "batched_ms": batched * 1e3,
        "alone_mean_ms": float(np.mean(alone)) * 1e3,
        "alone_p98_ms": float(np.quantile(alone, 0.98)) * 1e3,
    }
