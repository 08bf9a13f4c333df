"""Maps names of models and accelerators to numbers over which a regressor can generalise. Pure.

A model's name that is not in the table may still state its size ("qwen3-30b-a3b": 30 billion parameters, 3 of them
active); everything unknown is NaN, which CatBoost treats as missing.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache

from hmas.prediction.agent.backend import CostQuery

NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The size of a language model; NaN where unknown.

    `params` and `active` (used per token) are in billions, `weight_bytes` is bytes per parameter; `encoder_decoder` and
    `flash` (attention) are flags, 0 or 1.
    """

    params: float = NAN
    active: float = NAN
    layers: float = NAN
    width: float = NAN
    weight_bytes: float = 2.0
    encoder_decoder: float = 0.0
    flash: float = 1.0


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator device; NaN where unknown.

    `memory` is in GB, `bandwidth` in GB/s, `tflops` are dense 16-bit TFLOP/s, `nvlink` (between devices) is a flag.
    """

    memory: float = NAN
    bandwidth: float = NAN
    tflops: float = NAN
    nvlink: float = NAN


# Architectures are from the models' configuration files; flash attention is as in the LLM-Pilot measurements.
_MODELS: tuple[tuple[str, ModelFacts], ...] = (
    (
        "flan-t5-xxl",
        ModelFacts(params=11, active=11, layers=24, width=4096, weight_bytes=4, encoder_decoder=1, flash=0),
    ),
    ("flan-t5-xl", ModelFacts(params=3, active=3, layers=24, width=2048, weight_bytes=4, encoder_decoder=1, flash=0)),
    ("flan-ul2", ModelFacts(params=20, active=20, layers=32, width=4096, weight_bytes=2, encoder_decoder=1, flash=0)),
    ("mpt-7b", ModelFacts(params=6.7, active=6.7, layers=32, width=4096, weight_bytes=2, encoder_decoder=0, flash=0)),
    ("mt0-xxl", ModelFacts(params=13, active=13, layers=24, width=4096, weight_bytes=4, encoder_decoder=1, flash=0)),
    (
        "codegen2-16b",
        ModelFacts(params=16, active=16, layers=34, width=6144, weight_bytes=4, encoder_decoder=0, flash=0),
    ),
    ("gpt-neox-20b", ModelFacts(params=20.6, active=20.6, layers=44, width=6144)),
    ("starcoder", ModelFacts(params=15.5, active=15.5, layers=40, width=6144, weight_bytes=4)),
    ("llama-7b", ModelFacts(params=7, active=7, layers=32, width=4096)),
    ("llama-13b", ModelFacts(params=13, active=13, layers=40, width=5120)),
    ("llama2-70b", ModelFacts(params=70, active=70, layers=80, width=8192)),
    ("bloom-176b", ModelFacts(params=176, active=176, layers=70, width=14336)),
    ("llama-3.1-8b", ModelFacts(params=8, active=8, layers=32, width=4096)),
    ("minimax-m2", ModelFacts(params=230, active=10, layers=62, width=3072)),
    ("deepseek-r1", ModelFacts(params=671, active=37, layers=61, width=7168)),
    ("deepseek-v3", ModelFacts(params=671, active=37, layers=61, width=7168)),
    ("kimi-k2", ModelFacts(params=1000, active=32, layers=61, width=7168)),
    ("gpt-oss-120b", ModelFacts(params=117, active=5.1, layers=36, width=2880)),
    ("gpt-oss-20b", ModelFacts(params=21, active=3.6, layers=24, width=2880)),
    ("glm-4.5", ModelFacts(params=355, active=32, layers=92, width=5120)),
)
# From the vendors' data sheets; the first entry found in the hardware's name counts, so longer names come first.
_ACCELERATORS: tuple[tuple[str, Accelerator], ...] = (
    ("a100-80", Accelerator(80, 2039, 312, 1)),
    ("a100", Accelerator(40, 1555, 312, 0)),
    ("a10g", Accelerator(24, 600, 125, 0)),
    ("a10", Accelerator(24, 600, 125, 0)),
    ("gb200", Accelerator(192, 8000, 2250, 1)),
    ("gb300", Accelerator(288, 8000, 2500, 1)),
    ("gh200", Accelerator(96, 4000, 989, 1)),
    ("h200", Accelerator(141, 4800, 989, 1)),
    ("h100", Accelerator(80, 3350, 989, 1)),
    ("b300", Accelerator(288, 8000, 2500, 1)),
    ("b200", Accelerator(192, 8000, 2250, 1)),
    ("l40", Accelerator(48, 864, 181, 0)),
    ("l4", Accelerator(24, 300, 121, 0)),
    ("t4", Accelerator(16, 300, 65, 0)),
    ("v100", Accelerator(16, 900, 112, 0)),
    ("rtx pro 6000", Accelerator(96, 1792, 500, 0)),
    ("rtxpro6000", Accelerator(96, 1792, 500, 0)),
    ("4090", Accelerator(24, 1008, 165, 0)),
    ("mi300x", Accelerator(192, 5300, 1307, 1)),
)
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])")
_ACTIVE = re.compile(r"a(\d+(?:\.\d+)?)b(?![a-z])")
_COUNT = re.compile(r"^(\d+)\s*x\s|\bx\s?(\d+)$|x(\d+)$")

NAMES = (
    "params", "active", "layers", "width", "weight_bytes", "encoder_decoder", "flash",
    "memory", "bandwidth", "tflops", "nvlink", "devices",
    "concurrency", "running", "waiting", "kv_usage", "prompt_tokens", "output_tokens",
    "weights_read_ms", "prefill_work_ms",
)  # fmt: skip


@lru_cache(maxsize=1024)
def model_facts(name: str) -> ModelFacts:
    lower = name.lower().replace("_", "-")
    facts = next((facts for key, facts in _MODELS if key in lower), None)
    if facts is None:
        size = _BILLIONS.search(lower.replace("-", " "))
        active = _ACTIVE.search(lower)
        params = float(size.group(1)) if size else NAN
        facts = ModelFacts(params=params, active=float(active.group(1)) if active else params)
    if "fp8" in lower or "int8" in lower:
        return replace(facts, weight_bytes=1.0)
    return replace(facts, weight_bytes=0.5) if "fp4" in lower or "awq" in lower or "int4" in lower else facts


@lru_cache(maxsize=1024)
def accelerator(hardware: str) -> tuple[Accelerator, int]:
    """Returns the device that a hardware name states, and how many ("A100-40GBx2", "2 x A100"; 1 if not stated)."""
    lower = hardware.lower().strip()
    found = next((device for key, device in _ACCELERATORS if key in lower), Accelerator())
    count = _COUNT.search(lower)
    return found, max(1, int(next(filter(None, count.groups())))) if count else 1


@lru_cache(maxsize=4096)
def _fixed(model: str, hardware: str) -> tuple[float, ...]:
    facts, (device, devices) = model_facts(model), accelerator(hardware)
    return (
        facts.params, facts.active, facts.layers, facts.width, facts.weight_bytes, facts.encoder_decoder, facts.flash,
        device.memory, device.bandwidth, device.tflops, device.nvlink, float(devices),
    )  # fmt: skip


def row(query: CostQuery) -> tuple[float, ...]:
    """Returns the regressors' input for a query, in the order of NAMES.

    The last two numbers are the roofline model's times, in ms, for one decode step and for the prefill.
    """
    fixed = _fixed(query.model, query.hardware)
    active, weight_bytes, bandwidth, tflops, devices = fixed[1], fixed[4], fixed[8], fixed[9], fixed[11]
    return (
        *fixed,
        query.running + query.waiting + 1.0, float(query.running), float(query.waiting), query.kv_usage,
        float(query.prompt_tokens), query.output_tokens,
        active * weight_bytes / (bandwidth * devices) * 1e3,
        2 * active * query.prompt_tokens / (tflops * devices),
    )  # fmt: skip


def knows(query: CostQuery) -> bool:
    """Tells whether the size of the query's model and the bandwidth of its accelerator are known."""
    fixed = _fixed(query.model, query.hardware)
    return not math.isnan(fixed[1] + fixed[8])
