"""Measurements that need training: accuracy on sources left out, and the embedding + MLP baseline for output lengths.

`hmas train perception --held-out` writes them beside the artefact, with the data's checksum and the recipe.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import AutoModel

from hmas.perception.backends.encoder import PAD, PromptEncoder, padded
from hmas.perception.training.corpus import Prompt, checksum, prompt_files, read_prompts, split
from hmas.perception.training.examples import (
    capped,
    length_rows,
    model_names,
    passages,
    source_groups,
    task_index,
)
from hmas.perception.training.export import quantised_encoder
from hmas.perception.training.loop import TrainingRecipe, train_task
from hmas.perception.training.phrases import FILE as PHRASES_FILE
from hmas.perception.training.phrases import PhraseBook
from hmas.perception.training.train import TOKENIZER_FILE, Reader, backbone

HELD_OUT_FILE = "held_out.json"
EMBEDDED_TOKENS = (80, 44)  # word pieces of a prompt's head and tail that the baseline's encoder reads
BASELINE_EPOCHS, BASELINE_SEEDS = 60, 3


def measure(data: Path, folder: Path, recipe: TrainingRecipe, report: Callable[[str], None], threads: int = 1) -> Path:
    """Runs both measurements and writes HELD_OUT_FILE into `folder`, which must hold a trained artefact's tokenizer."""
    files = prompt_files(data)
    prompts = read_prompts(files)
    home = backbone()
    encoder = PromptEncoder(folder / TOKENIZER_FILE, recipe.head_tokens, recipe.tail_tokens)
    reader = Reader(encoder, quantised_encoder(home, recipe.layers), threads)
    figures: dict[str, Any] = {
        "data_sha256": checksum(files),
        "phrases_sha256": checksum([PHRASES_FILE]),
        "recipe": asdict(recipe),
    }
    figures["mlp_mae"] = mlp_baseline(home, folder / TOKENIZER_FILE, prompts, recipe, report)
    figures["leave_one_source_out"] = leave_one_source_out(reader, prompts, recipe, report)
    path = folder / HELD_OUT_FILE
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return path


def leave_one_source_out(
    reader: Reader, prompts: Sequence[Prompt], recipe: TrainingRecipe, report: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Measures, for each source, the accuracy of task heads trained without it and the other sources of its group.

    Returns {source: {"ours", "bare"}}. `ours` is the full recipe without the group and without synthetic prompts made
    of its texts; `bare` is only the expert that reads the encoder, without synthetic prompts or handwritten rules.
    """
    typed = [prompt for prompt in prompts if prompt.task is not None]
    drawn = PhraseBook(list(passages(typed)), random.Random(recipe.seed)).draw(recipe.synthetic_per_type)
    everything = [*typed, *drawn]
    arrays, task = reader.read(everything), task_index(everything)
    place = {prompt.text: index for index, prompt in enumerate(typed)}
    figures = {}
    for group in source_groups(typed):
        rest = capped([prompt for prompt in typed if prompt.source not in group], recipe.seed)
        rows = np.array([place[prompt.text] for prompt in rest])
        other = len(typed) + np.flatnonzero([group.isdisjoint(prompt.made_of) for prompt in drawn])
        both = np.concatenate([rows, other])
        ours = train_task(arrays.rows(both), task[both], recipe)
        bare = train_task(arrays.rows(rows), task[rows], recipe)
        for source in sorted(group):
            out = np.array([index for index, prompt in enumerate(typed) if prompt.source == source])
            held = arrays.rows(out).tensors()
            with torch.no_grad():
                guesses = {"ours": ours(*held), "bare": bare.networks(*held[:2])[0]}
            figures[source] = {name: float((g.argmax(1).numpy() == task[out]).mean()) for name, g in guesses.items()}
            report(f"without {source}: {figures[source]['ours']:.3f}")
    return dict(sorted(figures.items()))


def mlp_baseline(
    home: Path, tokenizer: Path, prompts: Sequence[Prompt], recipe: TrainingRecipe, report: Callable[[str], None]
) -> dict[str, float]:
    """Measures the MAE, in tokens, of an MLP on the full six-layer MiniLM embedding (Maestro's BERT-MLP).

    Returns one figure per variant: with and without the answering model's name, trained on log and on plain tokens.
    Each is the mean over seeds of the error on the test part, at the epoch that is best on the validation part.
    """
    parts = split([prompt for prompt in prompts if prompt.answers], recipe.seed)
    models = model_names(parts["train"])
    embedded = {part: _embed(home, tokenizer, some) for part, some in parts.items()}
    figures = {}
    for known in (False, True):
        for log in (False, True):
            errors = [_mlp_mae(embedded, parts, models, known, log, seed) for seed in range(BASELINE_SEEDS)]
            name = f"{'with' if known else 'without'}_model_name_{'log' if log else 'plain'}"
            figures[name] = float(np.mean(errors))
            report(f"embedding + MLP, {name}: MAE {figures[name]:.0f} tokens")
    return figures


def _mlp_mae(
    embedded: dict[Any, NDArray[np.float32]],
    parts: dict[Any, list[Prompt]],
    models: Sequence[str],
    known: bool,
    log: bool,
    seed: int,
) -> float:
    torch.manual_seed(seed)
    inputs, truth = {}, {}
    for part, prompts in parts.items():
        rows = length_rows(prompts, models)
        columns = [embedded[part][rows.prompt]]
        if known:
            columns.append(np.eye(len(models), dtype=np.float32)[rows.model])
        inputs[part] = torch.from_numpy(np.concatenate(columns, axis=1))
        truth[part] = torch.from_numpy(rows.tokens)
    target = truth["train"].log1p() if log else truth["train"]
    centre, scale = target.mean(), target.std()
    net = nn.Sequential(
        nn.Linear(inputs["train"].shape[1], 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    best, figure = float("inf"), float("nan")
    for _ in range(BASELINE_EPOCHS):
        for rows in torch.randperm(len(target)).split(128):
            loss = nn.functional.mse_loss(net(inputs["train"][rows])[:, 0], (target[rows] - centre) / scale)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
        with torch.no_grad():
            guess = {part: net(inputs[part])[:, 0] * scale + centre for part in ("validation", "test")}
        mae = {p: float(((g.clamp(0, 11).expm1() if log else g) - truth[p]).abs().mean()) for p, g in guess.items()}
        if mae["validation"] < best:
            best, figure = mae["validation"], mae["test"]
    return figure


@torch.no_grad()
def _embed(home: Path, tokenizer: Path, prompts: Sequence[Prompt]) -> NDArray[np.float32]:
    """Returns the sentence embeddings of all-MiniLM-L6-v2 [n, 384]: mean over tokens, scaled to unit length."""
    encoder, bert = PromptEncoder(tokenizer, *EMBEDDED_TOKENS), AutoModel.from_pretrained(home).eval()
    rows = [encoder.ids(prompt.text) for prompt in prompts]
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    out = np.empty((len(rows), int(bert.config.hidden_size)), np.float32)
    for start in range(0, len(order), 64):
        some = order[start : start + 64]
        ids = torch.from_numpy(padded([rows[place] for place in some]))
        mask = (ids != PAD).long()
        states = bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1)
        out[some] = nn.functional.normalize((states * weight).sum(1) / weight.sum(1)).numpy()
    return out
