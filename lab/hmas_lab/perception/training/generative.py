"""`hmas train generative`: teaches a causal LM to write tags (H-MAS App. D.3); it can resume.

A base model gets LoRA weights; of a base with random weights all are trained. Only the tags' tokens are learnt, after
the prompt exactly as a chat endpoint shows it to the model.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from math import log
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas.perception.backends.generative import COMPACT, SCHEMA, LocalCompletion, parse, prompt_ids, tagging_prompt
from hmas_lab.perception.training.corpus import Prompt, checksum, read_prompts, split
from hmas_lab.perception.training.random_base import is_random, write_random_base

CHECKPOINT, WHOLE_MODEL, STATE_FILE, METADATA_FILE, MEASURED_FILE = (
    "adapter", "model", "state.pt", "metadata.json", "measured.json"
)  # fmt: skip
LORA_RATE, WHOLE_RATE = 1e-4, 2e-3
FIELDS: tuple[str, ...] = tuple(SCHEMA["required"])
_IGNORED = -100  # label of a token that does not contribute to the loss
_MEASURED_AT_ONCE, _MOST_MEASURED = 32, 512

TaggedPrompt = tuple[str, str]  # tagging prompt, tags
Ids = tuple[list[int], list[int]]  # the same as tokens
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerativeRecipe:
    """The parameters of a run: each step trains on `batch_size` requests; those of more than `most_tokens` tokens are
    left out. `rate` None: LORA_RATE or WHOLE_RATE.

    With `every_prompt` a run trains on every prompt and is measured on those very ones; without it, it trains on the
    training part and is measured on the validation part. It stops before `steps` once it writes all tags right for the
    share `until` of what it is measured on. `saved_every` and `reported_every` count steps; it is measured where it is
    saved.
    """

    seed: int = 0
    steps: int = 2000
    batch_size: int = 8
    rate: float | None = None
    rank: int = 16
    most_tokens: int = 2048
    every_prompt: bool = False
    until: float = 1.0
    saved_every: int = 100
    reported_every: int = 10

    def identity(self) -> dict[str, Any]:
        """What a resumed run must share with the one it continues."""
        return {**asdict(self), "steps": None, "until": None}


def tune(
    base: str, files: Sequence[Path], out: Path, recipe: GenerativeRecipe, resume: bool, report: Callable[[str], None]
) -> Path:
    """Trains, and writes the weights, the optimizer's state, metadata and what was measured into `out`; returns the
    weights' folder: the adapter of a base model, or the whole model of a random one.

    With `resume` the run continues from the last save in `out`. A batch depends on seed and step alone, so that a
    resumed run trains on the same batches as an uninterrupted one. Raises ValueError if there is no run to resume, it
    has another recipe, data set or base model, or the files or the base's size cannot be used.
    """
    identity = {"base": base, "data_sha256": checksum(files), "recipe": recipe.identity()}
    if resume:
        _check_resumable(out, identity)
    learnt, measured = rows_of(read_prompts(files), recipe)
    whole = is_random(base)
    weights = out / (WHOLE_MODEL if whole else CHECKPOINT)
    if whole and not resume:
        write_random_base(base, (text for row in learnt for text in row), recipe.seed, weights)
    tokenizer = AutoTokenizer.from_pretrained(str(weights) if whole else base)
    learnt_ids = _fitting(tokenizer, learnt, recipe, report)
    measured_ids = _fitting(tokenizer, measured, recipe, report)
    torch.manual_seed(recipe.seed)
    model, optimizer, start = _model(base, weights, recipe, resume)
    report(
        f"{sum(p.numel() for p in model.parameters() if p.requires_grad)} weights learn from {len(learnt_ids)} prompts"
    )
    if start:
        report(f"resumed at step {start}")
    for step in range(start + 1, recipe.steps + 1):
        loss = _step(model, optimizer, [learnt_ids[n] for n in _chosen(len(learnt_ids), step, recipe)])
        if step % recipe.reported_every == 0 or step == recipe.steps:
            report(f"step {step}/{recipe.steps}: loss {loss:.4f}")
        if step % recipe.saved_every == 0 or step == recipe.steps:
            _save(model, tokenizer if whole else None, optimizer, step, out, weights, identity)
            share = right_share(model, measured_ids)
            report(f"step {step}: all tags right for {share:.1%} of {len(measured_ids)} prompts")
            if share >= recipe.until:
                break
    del model, optimizer
    complete = LocalCompletion(str(weights)) if whole else LocalCompletion(base, weights)
    figures = measure(complete, measured)
    (out / MEASURED_FILE).write_text(json.dumps(figures, indent=1) + "\n")
    report("as written by the saved model: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    return weights


def rows_of(prompts: Sequence[Prompt], recipe: GenerativeRecipe) -> tuple[list[TaggedPrompt], list[TaggedPrompt]]:
    """Returns the rows to learn and, drawn by the seed, those to measure on. Raises ValueError if there is none of
    either."""
    if recipe.every_prompt:
        learnt = measured = targets(prompts)
    else:
        parts = split(prompts, recipe.seed)
        learnt, measured = targets(parts["train"]), targets(parts["validation"])
    return learnt, random.Random(recipe.seed).sample(measured, min(len(measured), _MOST_MEASURED))


def targets(prompts: Iterable[Prompt]) -> list[TaggedPrompt]:
    """Returns (tagging prompt, JSON of its tags) for every prompt with a known task type and answer length.

    Raises ValueError if there is none.
    """
    rows = []
    for prompt in prompts:
        if prompt.task is None or not prompt.answers:
            continue
        length = max(1, round(median(answer.tokens for answer in prompt.answers)))
        rows.append((tagging_prompt(prompt.text), json.dumps(_tags(prompt.task, length), separators=COMPACT)))
    if not rows:
        raise ValueError(
            "no prompt of these files has both a task type and an answer of a language model: use other prompt files"
        )
    return rows


def _tags(task: TaskType, output_tokens: int) -> dict[str, object]:
    slo = default_slo(task)
    ttft_ms, tpot_ms = round(slo.ttft_s * 1e3), round(slo.tpot_s * 1e3)
    return {"task_type": str(task), "slo_ttft_ms": ttft_ms, "slo_tpot_ms": tpot_ms, "output_tokens": output_tokens}


def measure(complete: Callable[[Sequence[str]], list[str | None]], rows: Sequence[TaggedPrompt]) -> dict[str, float]:
    """Returns what a model's own answers are worth: the shares that are valid, that have all fields right, and each
    field right, and the median absolute error of the log of the length of valid answers (a key that is left out where
    there are none)."""
    right = dict.fromkeys(("valid", "all_fields", *FIELDS), 0)
    errors = []
    for batch in _batches(rows):
        for (_, tags), answer in zip(batch, complete([prompt for prompt, _ in batch]), strict=True):
            if parse(answer) is None or answer is None:
                continue
            wanted, written = json.loads(tags), json.loads(answer)
            right["valid"] += 1
            right["all_fields"] += wanted == written
            for name in FIELDS:
                right[name] += wanted[name] == written[name]
            errors.append(abs(log(written["output_tokens"] / wanted["output_tokens"])))
    figures: dict[str, float] = {"prompts": len(rows), **{name: count / len(rows) for name, count in right.items()}}
    return {**figures, "length_log_error": median(errors)} if errors else figures


@torch.inference_mode()
def right_share(model: Any, rows: Sequence[Ids]) -> float:
    """Returns the share of rows of which greedy decoding would write every token right: exactly those of which each
    token is the likeliest one after the right tokens before it."""
    model.eval()
    count = 0
    for batch in _batches(rows):
        logits, labels = _logits(model, batch)
        wrong = (logits.argmax(-1) != labels) & (labels != _IGNORED)
        count += int((~wrong.any(-1)).sum())
    model.train()
    return count / len(rows)


def _batches(rows: Sequence[_Item]) -> Iterator[list[_Item]]:
    rest = iter(rows)
    while batch := list(islice(rest, _MEASURED_AT_ONCE)):
        yield batch


def _fitting(
    tokenizer: Any, rows: Sequence[TaggedPrompt], recipe: GenerativeRecipe, report: Callable[[str], None]
) -> list[Ids]:
    """Returns the rows as tokens, without those that are too long. Raises ValueError if none is left."""
    end = [tokenizer.eos_token_id]
    ids = [
        (prompt_ids(tokenizer, prompt), tokenizer(tags, add_special_tokens=False)["input_ids"] + end)
        for prompt, tags in rows
    ]
    kept = [row for row in ids if len(row[0]) + len(row[1]) <= recipe.most_tokens]
    if len(kept) < len(ids):
        report(f"{len(ids) - len(kept)} of {len(ids)} prompts are left out: they have over {recipe.most_tokens} tokens")
    if not kept:
        raise ValueError(f"every prompt has more than {recipe.most_tokens} tokens")
    return kept


def _chosen(count: int, step: int, recipe: GenerativeRecipe) -> list[int]:
    """Returns the rows of a step: one order of all rows after the other."""
    first = (step - 1) * recipe.batch_size
    places = (divmod(place, count) for place in range(first, first + recipe.batch_size))
    return [_order(count, recipe.seed, turn)[place] for turn, place in places]


@lru_cache(2)
def _order(count: int, seed: int, turn: int) -> tuple[int, ...]:
    return tuple(random.Random(f"{seed} {turn}").sample(range(count), count))


def _model(base: str, weights: Path, recipe: GenerativeRecipe, resume: bool) -> tuple[Any, torch.optim.Optimizer, int]:
    """Returns the model on the GPU, if there is one, its optimizer, and the number of steps done."""
    whole = is_random(base)
    model = AutoModelForCausalLM.from_pretrained(str(weights) if whole else base, dtype="auto")
    if not whole and resume:
        model = PeftModel.from_pretrained(model, str(weights), is_trainable=True)
    elif not whole:
        names = ["q_proj", "k_proj", "v_proj", "o_proj"]
        config = LoraConfig(r=recipe.rank, lora_alpha=2 * recipe.rank, target_modules=names, task_type="CAUSAL_LM")
        model = get_peft_model(model, config)
    model.to("cuda" if torch.cuda.is_available() else "cpu").train()
    rate = recipe.rate or (WHOLE_RATE if whole else LORA_RATE)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate)
    if not resume:
        return model, optimizer, 0
    state = torch.load(weights.parent / STATE_FILE, weights_only=True)
    optimizer.load_state_dict(state["optimizer"])
    return model, optimizer, int(state["step"])


def _check_resumable(out: Path, identity: dict[str, Any]) -> None:
    if not (out / STATE_FILE).is_file():
        raise ValueError(f"no interrupted run in {out} to resume: start one without --resume")
    if json.loads((out / METADATA_FILE).read_text()) != identity:
        raise ValueError(
            f"the run in {out} has another base model, data set or recipe: start a new one in another --out"
        )


def _logits(model: Any, rows: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Returns logits [b, t, vocabulary] and labels [b, t] of the tags alone.

    Rows are padded on the left, so that all tags end at the same place and the large output layer sees nothing else.
    """
    width = max(len(prompt) + len(tags) for prompt, tags in rows)
    most = max(len(tags) for _, tags in rows)
    ids = torch.tensor([[0] * (width - len(prompt) - len(tags)) + prompt + tags for prompt, tags in rows])
    mask = torch.tensor([[int(place >= width - len(p) - len(t)) for place in range(width)] for p, t in rows])
    labels = torch.tensor([[_IGNORED] * (most - len(tags)) + tags for _, tags in rows])
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    ids, mask, labels, positions = (tensor.to(model.device) for tensor in (ids, mask, labels, positions))
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=most + 1, use_cache=False)
    return out.logits[:, :-1].float(), labels


def _step(model: Any, optimizer: torch.optim.Optimizer, rows: Sequence[Ids]) -> float:
    logits, labels = _logits(model, rows)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.item())


def _save(
    model: Any, tokenizer: Any | None, optimizer: torch.optim.Optimizer, step: int, out: Path, weights: Path,
    identity: dict[str, Any],
) -> None:  # fmt: skip
    model.save_pretrained(str(weights))
    if tokenizer is not None:
        tokenizer.save_pretrained(str(weights))
    (out / METADATA_FILE).write_text(json.dumps(identity, indent=1, sort_keys=True) + "\n")
    torch.save({"optimizer": optimizer.state_dict(), "step": step}, out / "state.tmp")
    (out / "state.tmp").replace(out / STATE_FILE)  # written last, so that an interrupted save is never resumed
