"""`hmas train generative`: trains LoRA weights by which a causal LM writes tags (H-MAS App. D.3); it can resume."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas.perception.backends.generative import tagging_prompt
from hmas.perception.training.corpus import Prompt, checksum, prompt_files, read_prompts, split

CHECKPOINT, STATE_FILE, METADATA_FILE = "adapter", "state.pt", "metadata.json"
_IGNORED = -100  # label of a token that does not contribute to the loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraRecipe:
    """The parameters of a LoRA run: each step trains on `batch_size` requests of up to `most_tokens` tokens.

    `saved_every` and `reported_every` count steps.
    """

    seed: int = 0
    steps: int = 2000
    batch_size: int = 8
    rate: float = 1e-4
    rank: int = 16
    most_tokens: int = 768
    saved_every: int = 100
    reported_every: int = 10


def tune(base: str, data: Path, out: Path, recipe: LoraRecipe, resume: bool, report: Callable[[str], None]) -> Path:
    """Trains the adapter and writes it, the optimizer state and metadata into `out`; returns the adapter's folder.

    With `resume` the run continues from the last save in `out`. A batch depends on seed and step alone, so that a
    resumed run trains on the same batches as an uninterrupted one. Raises ValueError if there is no run to resume, or
    it has another recipe, data set or base model.
    """
    files = prompt_files(data)
    identity = {"base": base, "data_sha256": checksum(files), "recipe": {**asdict(recipe), "steps": None}}
    rows = targets(split(read_prompts(files), recipe.seed)["train"])
    tokenizer = AutoTokenizer.from_pretrained(base)
    torch.manual_seed(recipe.seed)
    model, start = _model(base, out, recipe, identity if resume else None)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=recipe.rate)
    if start:
        optimizer.load_state_dict(torch.load(out / STATE_FILE, weights_only=True)["optimizer"])
        report(f"resumed at step {start}")
    model.train()
    for step in range(start + 1, recipe.steps + 1):
        loss = _step(model, optimizer, _batch(tokenizer, rows, step, recipe))
        if step % recipe.reported_every == 0 or step == recipe.steps:
            report(f"step {step}/{recipe.steps}: loss {loss:.4f}")
        if step % recipe.saved_every == 0 or step == recipe.steps:
            _save(model, optimizer, step, out, identity)
    return out / CHECKPOINT


def targets(prompts: Sequence[Prompt]) -> list[tuple[str, str]]:
    """Returns (tagging prompt, JSON of its tags) for every prompt with a known task type and answer length.

    Raises ValueError if there is none.
    """
    rows = []
    for prompt in prompts:
        if prompt.task is None or not prompt.answers:
            continue
        length = max(1, round(median(answer.tokens for answer in prompt.answers)))
        rows.append((tagging_prompt(prompt.text), json.dumps(_tags(prompt.task, length)) + "\n"))
    if not rows:
        raise ValueError(
            "no prompt of these files has both a task type and an answer of a language model: use other prompt files"
        )
    return rows


def _tags(task: TaskType, output_tokens: int) -> dict[str, object]:
    slo = default_slo(task)
    ttft_ms, tpot_ms = round(slo.ttft_s * 1e3), round(slo.tpot_s * 1e3)
    return {"task_type": str(task), "slo_ttft_ms": ttft_ms, "slo_tpot_ms": tpot_ms, "output_tokens": output_tokens}


def _model(base: str, out: Path, recipe: LoraRecipe, identity: dict[str, Any] | None) -> tuple[Any, int]:
    """Returns the base model with its adapter, and the number of steps done.

    `identity` describes the run to resume; None starts a new adapter. Raises ValueError if it cannot be resumed.
    """
    model = AutoModelForCausalLM.from_pretrained(base)
    if identity is None:
        names = ["q_proj", "k_proj", "v_proj", "o_proj"]
        config = LoraConfig(r=recipe.rank, lora_alpha=2 * recipe.rank, target_modules=names, task_type="CAUSAL_LM")
        return get_peft_model(model, config), 0
    if not (out / STATE_FILE).is_file():
        raise ValueError(f"no interrupted run in {out} to resume: start one without --resume")
    if json.loads((out / METADATA_FILE).read_text()) != identity:
        raise ValueError(
            f"the run in {out} has another base model, data set or recipe: start a new one in another --out"
        )
    state = torch.load(out / STATE_FILE, weights_only=True)
    return PeftModel.from_pretrained(model, str(out / CHECKPOINT), is_trainable=True), int(state["step"])


def _batch(tokenizer: Any, rows: Sequence[tuple[str, str]], step: int, recipe: LoraRecipe) -> dict[str, Tensor]:
    """Returns ids, mask and labels [b, s] of the step's batch; only the tags contribute to the loss.

    A prompt that is too long together with its tags loses its beginning.
    """
    rng = random.Random(recipe.seed * 1_000_003 + step)
    pairs = list(_encoded(tokenizer, rng.choices(rows, k=recipe.batch_size), recipe.most_tokens))
    width = max(len(prompt) + len(tags) for prompt, tags in pairs)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    ids, mask, labels = [], [], []
    for prompt, tags in pairs:
        rest = width - len(prompt) - len(tags)
        ids.append([*prompt, *tags, *[pad] * rest])
        mask.append([1] * (width - rest) + [0] * rest)
        labels.append([_IGNORED] * len(prompt) + tags + [_IGNORED] * rest)
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), "labels": torch.tensor(labels)}


def _encoded(tokenizer: Any, rows: Sequence[tuple[str, str]], most: int) -> Iterator[tuple[list[int], list[int]]]:
    end = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    for prompt, tags in rows:
        target = tokenizer(tags, add_special_tokens=False)["input_ids"] + end
        yield tokenizer(prompt, add_special_tokens=False)["input_ids"][-(most - len(target)) :], target


def _step(model: Any, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> float:
    loss = model(**batch).loss
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.item())


def _save(model: Any, optimizer: torch.optim.Optimizer, step: int, out: Path, identity: dict[str, Any]) -> None:
    model.save_pretrained(str(out / CHECKPOINT))
    (out / METADATA_FILE).write_text(json.dumps(identity, indent=1, sort_keys=True) + "\n")
    torch.save({"optimizer": optimizer.state_dict(), "step": step}, out / "state.tmp")
    (out / "state.tmp").replace(out / STATE_FILE)  # written last, so that an interrupted save is never resumed
