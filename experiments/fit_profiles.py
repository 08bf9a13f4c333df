"""`python -m experiments.fit_profiles --data DIR` fits engine profiles of real hardware to published measurements and
writes them as YAML."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from experiments.measured import aiconfigurator, llm_pilot, sarathi_steps, splitwise, vllm_requests
from hmas.engine import core
from hmas.engine.fitting import Fit, Observation, fit_cost

OUT = Path(core.__file__).with_name("profiles_fitted.yaml")
HEADER = """\
# Written by `python -m experiments.fit_profiles`; do not edit. Costs are least-squares fits (relative error) to
# published measurements; `fit` holds the mean and 90 % relative errors of what was fitted, null where a source has no
# such figures. Unless the source states it, KV memory is 0.9 of the card less weights and 2 GB a card. Limits are
# vLLM's defaults.
"""
BLOCK_SIZE = 16
OVERHEAD_GB = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A model on a number of GPUs (cards), from which the size of its KV memory follows unless the source states it as
    `stated_kv_tokens`. Memory and weights are in GB of 1e9 bytes; `memory_gb` is per card, `weights_gb` of all."""

    cards: int
    memory_gb: float
    weights_gb: float
    kv_bytes_per_token: int
    stated_kv_tokens: int | None = None

    @property
    def kv_tokens(self) -> int:
        if self.stated_kv_tokens is not None:
            return self.stated_kv_tokens
        free_gb = self.cards * (0.9 * self.memory_gb - OVERHEAD_GB) - self.weights_gb
        return int(free_gb * 1e9 / self.kv_bytes_per_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRecipe:
    """How one engine profile is made: its hardware, the source of the measurements, the function that reads them from
    the data folder, and the engine's limits in tokens. `model` and `hardware` are the names for cost models."""

    card: Card
    model: str
    hardware: str
    source: str
    read: Callable[[Path, Card], list[Observation]]
    max_num_batched_tokens: int = 8192
    max_model_len: int = 32768


# KV bytes per token: 2 * layers * KV heads * head size * bytes of an element.
LLAMA_70B_KV = 2 * 80 * 8 * 128 * 2
QWEN3_32B_KV = 2 * 64 * 8 * 128 * 2
LLAMA_8B_KV = 2 * 32 * 8 * 128 * 2
LLAMA_13B_KV = 2 * 40 * 40 * 128 * 2


def _splitwise(hardware: str, cards: int, budget: int) -> ProfileRecipe:
    return ProfileRecipe(
        card=Card(cards=cards, memory_gb=80, weights_gb=138, kv_bytes_per_token=LLAMA_70B_KV),
        model="llama2-70b",
        hardware=f"{hardware}x{cards}",
        source="Splitwise performance model (Mutinifni/splitwise-sim): "
        f"Llama-2-70B, {hardware} x {cards}, static batches",
        read=lambda directory, _: splitwise(directory, "llama2-70b", hardware, cards),
        max_num_batched_tokens=budget,
        max_model_len=4096,
    )


def _aiconfigurator(
    card: Card, model: str, system: str, backend: str, precision: str, *, quadratic: bool = True
) -> ProfileRecipe:
    return ProfileRecipe(
        card=card,
        model=f"{model}-{precision or 'bf16'}",
        hardware=f"{system}x{card.cards}",
        source="aiconfigurator silicon samples (ai-dynamo/aiconfigurator): "
        f"{model}, {system} x {card.cards}, {backend}, "
        f"{precision or 'bf16'}, closed loops",
        read=lambda directory, c: aiconfigurator(
            directory, model, system, backend, precision, c.cards, c.kv_tokens, quadratic
        ),
    )


def _llm_pilot(gpu: str, memory_gb: float) -> ProfileRecipe:
    return ProfileRecipe(
        card=Card(cards=1, memory_gb=memory_gb, weights_gb=26, kv_bytes_per_token=LLAMA_13B_KV),
        model="llama-13b",
        hardware=f"{gpu}x1",
        source="LLM-Pilot measurements (IBM/LLM-performance-prediction): "
        f"llama-13b, {gpu} x 1, closed loops, short outputs",
        read=lambda directory, _: llm_pilot(directory, "llama-13b", gpu, 1),
        max_num_batched_tokens=2048,
        max_model_len=2048,
    )


def _vllm(card: Card, gpu: str) -> ProfileRecipe:
    model = "meta-llama/Llama-3.1-8B"
    return ProfileRecipe(
        card=card,
        model=model,
        hardware=f"{gpu} x1",
        source="requests timed by vLLM 0.19 (casys-kaist/LLMServingSim): "
        f"{model}, {gpu} x 1, open loop, ShareGPT lengths",
        read=lambda directory, _: vllm_requests(directory, model, gpu),
        max_num_batched_tokens=2048,
    )


RECIPES: dict[str, ProfileRecipe] = {
    "llama2-70b-a100x4": _splitwise("a100-80gb", 4, 2048),
    "llama2-70b-h100x4": _splitwise("h100-80gb", 4, 8192),
    "llama2-70b-h100x8": _splitwise("h100-80gb", 8, 8192),
    "qwen3-32b-h100x2": _aiconfigurator(
        Card(cards=2, memory_gb=80, weights_gb=65.6, kv_bytes_per_token=QWEN3_32B_KV),
        "Qwen/Qwen3-32B",
        "h100_sxm",
        "vllm",
        "",
    ),
    "qwen3-32b-fp8-h100x1": _aiconfigurator(
        Card(cards=1, memory_gb=80, weights_gb=33, kv_bytes_per_token=QWEN3_32B_KV // 2),
        "Qwen/Qwen3-32B",
        "h100_sxm",
        "trtllm",
        "fp8",
    ),
    "llama3.1-70b-fp8-h200x2": _aiconfigurator(
        Card(cards=2, memory_gb=141, weights_gb=71, kv_bytes_per_token=LLAMA_70B_KV),
        "meta-llama/Llama-3.1-70B",
        "h200_sxm",
        "vllm",
        "fp8",
        quadratic=False,
    ),
    "llama3.1-70b-fp8-b200x1": _aiconfigurator(
        Card(cards=1, memory_gb=192, weights_gb=71, kv_bytes_per_token=LLAMA_70B_KV),
        "meta-llama/Llama-3.1-70B",
        "b200_sxm",
        "vllm",
        "fp8",
        quadratic=False,
    ),
    "llama3.1-8b-rtxpro6000x1": _vllm(
        Card(cards=1, memory_gb=96, weights_gb=16, kv_bytes_per_token=LLAMA_8B_KV), "RTXPRO6000"
    ),
    "llama3.1-8b-rtx4090x1": _vllm(
        Card(cards=1, memory_gb=24, weights_gb=16, kv_bytes_per_token=LLAMA_8B_KV, stated_kv_tokens=41408),
        "NVIDIA GeForce RTX 4090",
    ),
    "llama3-8b-a100x1": ProfileRecipe(
        card=Card(cards=1, memory_gb=80, weights_gb=16, kv_bytes_per_token=LLAMA_8B_KV),
        model="Llama-3-8B",
        hardware="A100-80GBx1",
        source="step-time regressions of Niyama's scheduler (microsoft/sarathi-serve): Llama-3-8B, A100-80GB x 1",
        read=lambda *_: sarathi_steps(),
        max_num_batched_tokens=2048,
    ),
    "llama-13b-a100x1": _llm_pilot("A100", 40),
    "llama-13b-h100x1": _llm_pilot("H100", 80),
}


def entry(recipe: ProfileRecipe, fit: Fit) -> dict[str, Any]:
    """Returns a profile as plain data, in the form that `parse_profiles` reads."""
    limits = {
        "max_num_seqs": 256,
        "max_num_batched_tokens": recipe.max_num_batched_tokens,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks": recipe.card.kv_tokens // BLOCK_SIZE,
        "max_model_len": min(recipe.max_model_len, recipe.card.kv_tokens),
    }
    names = {"source": recipe.source, "model": recipe.model, "hardware": recipe.hardware}
    return names | {
        "card_gb": recipe.card.memory_gb,
        "cost": asdict(fit.cost),
        "limits": limits,
        "fit": asdict(fit.error),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.fit_profiles", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the measurement files (*.csv.gz)")
    parser.add_argument("--out", type=Path, default=OUT, help="YAML file to write; default: that of the engine")
    args = parser.parse_args(argv)
    profiles = {}
    for name, recipe in RECIPES.items():
        try:
            fit = fit_cost(recipe.read(args.data, recipe.card))
        except (OSError, ValueError) as error:
            print(f"profile {name} cannot be fitted to the files in {args.data}: {error}", file=sys.stderr)
            return 2
        profiles[name] = entry(recipe, fit)
        print(f"{name}: {fit.error}")
    args.out.write_text(HEADER + yaml.safe_dump(profiles, sort_keys=False, width=120), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
