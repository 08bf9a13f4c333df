"""Writes a LoRA adapter with random weights for the tiny model. Run by an engine's own Python: `python tiny_adapter.py
OUT`."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.engines.tiny_model import HIDDEN, LAYERS

RANK, NAME = 8, "down_proj"


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    weights = {}
    for layer in range(LAYERS):
        module = f"base_model.model.model.layers.{layer}.mlp.{NAME}"
        weights[f"{module}.lora_A.weight"] = torch.randn(RANK, 3 * HIDDEN, dtype=torch.bfloat16)
        weights[f"{module}.lora_B.weight"] = torch.randn(HIDDEN, RANK, dtype=torch.bfloat16)
    save_file(weights, out / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "bias": "none"}
    (out / "adapter_config.json").write_text(json.dumps(config | {"target_modules": [NAME]}))


if __name__ == "__main__":
    main()
