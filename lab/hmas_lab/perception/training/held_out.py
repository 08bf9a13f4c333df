"""Measurements that need training: accuracy on sources left out, and the embedding + MLP baseline for output lengths.

`hmas train held-out` writes them beside the artefact, with the data's checksum and the recipe. Each fold is kept in a
file of its own, so that an interrupted run goes on where it was.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel

from hmas.perception.backends.encoder import PAD, PromptEncoder, padded
from hmas_lab.perception.training.corpus import (
    Prompt,
    checksum,
    prompt_files,
    read_prompts,
    read_turns,
    split,
    workflow_files,
)
from hmas_lab.perception.training.examples import capped, length_rows, model_names, source_groups
from hmas_lab.perception.training.loop import (
    Examples,
    TrainingRecipe,
    examples,
    expert_logits,
    recipe_identity,
    scaling_of,
)
from hmas_lab.perception.training.phrases import FILE as PHRASES_FILE
from hmas_lab.perception.training.phrases import SOURCE
from hmas_lab.perception.training.train import TOKENIZER_FILE, backbone, fit, prompt_encoder, with_synthetic

HELD_OUT_FILE = "held_out.json"
EMBEDDED_TOKENS = (80, 44)  # word pieces of a prompt's head and tail that the baseline's encoder reads
BASELINE_EPOCHS, BASELINE_SEEDS = 60, 3
# Exponents of the experts on rules and words beside 1 for the encoder, from which each fold's inner sources choose.
RULES_SHARES, WORDS_SHARES = (0.0, 0.5, 1.0, 1.5), (0.0, 0.25, 0.5, 0.75)
Report = Callable[[str], None]


def measure(data: Path, out: Path, recipe: TrainingRecipe, report: Report, work: Path) -> Path:
    """Runs both measurements and writes HELD_OUT_FILE into `out`. `work` is the folder of what is done so far."""
    files = prompt_files(data)
    prompts, turns = read_prompts(files), read_turns(workflow_files(data))
    identity = {
        "data_sha256": checksum([*files, *workflow_files(data)]),
        "phrases_sha256": checksum([PHRASES_FILE]),
        "recipe": asdict(recipe),
    }
    work.mkdir(parents=True, exist_ok=True)
    fewer = replace(recipe, steps=recipe.left_out_steps)
    folds = leave_sources_out(prompts, turns, fewer, work, report)
    figures: dict[str, Any] = {
        **identity,
        "folds": folds,
        "leave_one_source_out": {s: row for fold in folds for s, row in sorted(fold["sources"].items())},
        "mlp_mae": mlp_baseline(backbone(), backbone() / TOKENIZER_FILE, prompts, recipe, report),
    }
    path = out / HELD_OUT_FILE
    path.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    return path


def leave_sources_out(
    prompts: Sequence[Prompt], turns: Sequence[Prompt], recipe: TrainingRecipe, work: Path, report: Report
) -> list[dict[str, Any]]:
    """Measures, for each group of sources, taggers trained without it and without the next group, on whose prompts
    the experts' shares are chosen; temperature and prior are fitted, as for the shipped artefact, on the validation
    part, of which the prompts of both groups are left out.

    Returns for each fold its `outer` and `inner` sources, what was chosen, and for each outer source `prompts` and the
    accuracies `network` (the encoder's head alone, which reads word pieces and nothing else), `rules`, `words` (each
    learnt expert alone) and `ours` (all together). Synthetic prompts over passages of either group are left out too.
    """
    typed = [prompt for prompt in prompts if prompt.task is not None]
    groups = source_groups(typed)
    encoder = prompt_encoder(recipe)
    everything = examples(with_synthetic([*typed, *turns], recipe), encoder)
    validation = {prompt.group for prompt in split(typed, recipe.seed)["validation"]}
    rest = {prompt.group for prompt in [*capped(typed, recipe.seed), *turns]} - validation
    models = model_names(typed)
    folds = []
    for number, outer in enumerate(groups):
        path = work / f"fold-{number}.json"
        inner = groups[(number + 1) % len(groups)]
        kept = {
            "recipe": json.loads(json.dumps(recipe_identity(recipe))),
            "prompts_sha256": hashlib.sha256("\0".join(p.text for p in everything.prompts).encode()).hexdigest(),
            "outer": sorted(outer),
            "inner": sorted(inner),
        }
        done = json.loads(path.read_text()) if path.is_file() else {}
        if {name: done.get(name) for name in kept} != kept:
            rows = without(everything.prompts, outer | inner, rest)
            checkpoint = work / f"fold-{number}.checkpoint"
            tagger = fit(everything.rows(rows), models, recipe, checkpoint, report)
            known = everything.rows(without(everything.prompts, outer | inner | {SOURCE}, validation))
            chosen = choose(_by_source(tagger, everything, inner), expert_logits(tagger, known), known.task)
            done = {**kept, **chosen, "sources": _score(_by_source(tagger, everything, outer), chosen)}
            path.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
            checkpoint.unlink(missing_ok=True)
        report(f"fold {number}: " + ", ".join(f"{s} {row['ours']:.3f}" for s, row in done["sources"].items()))
        folds.append(done)
    return folds


def without(prompts: Sequence[Prompt], left_out: frozenset[str], groups: Collection[str]) -> NDArray[np.int64]:
    """Returns the places of the prompts that train a fold: real ones of `groups`, and synthetic ones. None is of a
    source that is left out, or made of its texts."""
    return np.array(
        [
            place
            for place, prompt in enumerate(prompts)
            if left_out.isdisjoint({_owner(prompt.source), *prompt.made_of})
            and (prompt.source == SOURCE or prompt.group in groups)
        ],
        np.int64,
    )


def _owner(source: str) -> str:
    """Returns the corpus' name of a source of agents' turns, which names its model too."""
    return source.replace("(gpt-4o, airline)", "(airline)")


def _by_source(tagger: Any, data: Examples, sources: frozenset[str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns each source's experts' logits [3, n, 13] and task indices [n]."""
    found = {}
    for source in sorted(sources):
        rows = np.array([r for r, p in enumerate(data.prompts) if p.source == source and data.task[r] >= 0])
        some = data.rows(rows)
        found[source] = expert_logits(tagger, some), torch.from_numpy(some.task)
    return found


def choose(inner: Mapping[str, tuple[Tensor, Tensor]], known: Tensor, task: NDArray[np.int64]) -> dict[str, Any]:
    """Returns the experts' `shares`, `temperature` and `prior` with the highest mean accuracy over the inner sources
    (the first of several), and that accuracy. `known` [3, n, 13] and `task` [n], prompts of sources that trained the
    experts but not among those that did, give temperature and prior for each of the shares on offer."""
    best: dict[str, Any] = {"inner_accuracy": -1.0}
    for rules, words in product(RULES_SHARES, WORDS_SHARES):
        shares = [1.0, rules, words]
        temperature, prior = scaling_of(_joined(known, shares), torch.from_numpy(task))
        chosen = {"shares": shares, "temperature": temperature, "prior": prior.tolist()}
        mean = float(np.mean([_accuracy(logits, task, chosen) for logits, task in inner.values()]))
        if mean > best["inner_accuracy"] + 1e-9:
            best = {**chosen, "inner_accuracy": mean}
    return best


def _score(outer: Mapping[str, tuple[Tensor, Tensor]], chosen: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    alone = {"network": [1.0, 0.0, 0.0], "rules": [0.0, 1.0, 0.0], "words": [0.0, 0.0, 1.0]}
    kinds = {"ours": chosen, **{name: {"shares": shares} for name, shares in alone.items()}}
    return {
        source: {"prompts": len(task), **{name: _accuracy(logits, task, how) for name, how in kinds.items()}}
        for source, (logits, task) in outer.items()
    }


def _joined(logits: Tensor, shares: Sequence[float]) -> Tensor:
    return (torch.tensor(shares)[:, None, None] * logits).sum(0)


def _accuracy(logits: Tensor, task: Tensor, how: Mapping[str, Any]) -> float:
    """Returns the share of prompts whose type is right; without temperature and prior, these are 1 and 0."""
    said = _joined(logits, how["shares"]) / how.get("temperature", 1.0) + torch.tensor(how.get("prior", 0.0))
    return float((said.argmax(1) == task).double().mean())


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
