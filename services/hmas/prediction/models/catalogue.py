"""Maps names of models and accelerators to what their makers publish of them, over which a regressor can generalise.
Pure.

A model's name that is not in the table may still state its size ("qwen3-30b-a3b": 30 billion parameters, 3 of them
active); its shape is then that of a usual model of this size. `knows` tells whether a size and an accelerator are
known; what is unknown is filled in with `TYPICAL_PARAMS` and `TYPICAL_DEVICE`.
"""

import math
import re
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

from hmas.prediction.agent.backend import CostQuery

NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The size and shape of a language model; NaN where unknown.

    `params` and `active` (used per token) are in billions, `weight_bytes` is bytes per parameter as served. `kv_width`
    is the number of values that a layer stores per token as key, and again as value: the key-value heads times their
    size (half the latent size under multi-head latent attention, averaged where only some layers attend).
    `encoder_decoder` is a flag, 0 or 1.
    """

    params: float = NAN
    active: float = NAN
    layers: float = NAN
    width: float = NAN
    kv_width: float = NAN
    weight_bytes: float = 2.0
    encoder_decoder: float = 0.0


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator device; NaN where unknown.

    `memory` is in GB, `bandwidth` in GB/s, `tflops` are dense 16-bit TFLOP/s, `nvlink` (a fast link between devices) is
    a flag. `narrow` is the size in bytes of the smallest operand that multiplies faster than a wider one. `host` is how
    fast one core is of the servers that are sold with the device, where 1 is a server of an A100: a rough figure by the
    year, which counts where an engine launches each kernel by itself.
    """

    memory: float = NAN
    bandwidth: float = NAN
    tflops: float = NAN
    nvlink: float = NAN
    narrow: float = 2.0
    host: float = 1.0


def _dense(params: float, layers: float, width: float, kv_width: float) -> ModelFacts:
    return ModelFacts(params=params, active=params, layers=layers, width=width, kv_width=kv_width)


def _experts(params: float, active: float, layers: float, width: float, kv_width: float) -> ModelFacts:
    return ModelFacts(params=params, active=active, layers=layers, width=width, kv_width=kv_width)


def _encoder_decoder(params: float, layers: float, width: float, kv_width: float) -> ModelFacts:
    return replace(_dense(params, layers, width, kv_width), encoder_decoder=1.0)


# From the models' configuration files; the first key found in a model's name counts, so longer keys come first. Models
# that differ in nothing here (DeepSeek-R1 and -V3) count as one architecture where models are left out.
_MODELS: tuple[tuple[str, ModelFacts], ...] = (
    ("flan-t5-xxl", _encoder_decoder(11, 24, 4096, 4096)),
    ("flan-t5-xl", _encoder_decoder(3, 24, 2048, 2048)),
    ("flan-ul2", _encoder_decoder(20, 32, 4096, 4096)),
    ("mt0-xxl", _encoder_decoder(13, 24, 4096, 4096)),
    ("mpt-7b", _dense(6.7, 32, 4096, 4096)),
    ("codegen2-16b", _dense(16, 34, 6144, 6144)),
    ("gpt-neox-20b", _dense(20.6, 44, 6144, 6144)),
    ("starcoder", _dense(15.5, 40, 6144, 128)),
    ("bloom-176b", _dense(176, 70, 14336, 14336)),
    ("bloom-7b1", _dense(7.1, 30, 4096, 4096)),
    ("gpt-j-6b", _dense(6, 28, 4096, 4096)),
    ("opt-6.7b", _dense(6.7, 32, 4096, 4096)),
    ("llama-3.1-405b", _dense(405, 126, 16384, 1024)),
    ("llama-3.1-8b", _dense(8, 32, 4096, 1024)),
    ("llama-3-8b", _dense(8, 32, 4096, 1024)),
    ("llama2-70b", _dense(70, 80, 8192, 1024)),
    ("llama-2-70b", _dense(70, 80, 8192, 1024)),
    ("llama-3-70b", _dense(70, 80, 8192, 1024)),
    ("llama-3.1-70b", _dense(70, 80, 8192, 1024)),
    ("llama-3.3-70b", _dense(70, 80, 8192, 1024)),
    ("llama-7b", _dense(7, 32, 4096, 4096)),
    ("llama-2-7b", _dense(7, 32, 4096, 4096)),
    ("llama-13b", _dense(13, 40, 5120, 5120)),
    ("llama-2-13b", _dense(13, 40, 5120, 5120)),
    ("aquila-7b", _dense(7, 32, 4096, 4096)),
    ("decilm-7b", _dense(7, 32, 4096, 270)),
    ("mixtral-8x7b", _experts(46.7, 12.9, 32, 4096, 1024)),
    ("mistral-7b", _dense(7.2, 32, 4096, 1024)),
    ("minimax-m2", _experts(230, 10, 62, 3072, 1024)),
    ("deepseek-r1", _experts(671, 37, 61, 7168, 288)),
    ("deepseek-v3", _experts(671, 37, 61, 7168, 288)),
    ("kimi-k2", _experts(1000, 32, 61, 7168, 288)),
    ("gpt-oss-120b", _experts(117, 5.1, 36, 2880, 512)),
    ("gpt-oss-20b", _experts(21, 3.6, 24, 2880, 512)),
    ("glm-4.5", _experts(355, 32, 92, 5120, 1024)),
    ("glm-5", _experts(744, 40, 78, 6144, 288)),
    ("qwen3.5-397b-a17b", _experts(397, 17, 60, 4096, 128)),
    ("qwen3-235b-a22b", _experts(235, 22, 94, 4096, 512)),
    ("qwen3-30b-a3b", _experts(30, 3, 48, 2048, 512)),
    ("qwen3-32b", _dense(32.8, 64, 5120, 1024)),
    ("qwen3-14b", _dense(14.8, 40, 5120, 1024)),
    ("qwen3-8b", _dense(8.2, 36, 4096, 1024)),
    ("qwen3-4b", _dense(4, 36, 2560, 1024)),
    ("qwen3-0.6b", _dense(0.6, 28, 1024, 1024)),
    ("qwen2-72b", _dense(72, 80, 8192, 1024)),
    ("qwen2.5-72b", _dense(72, 80, 8192, 1024)),
    ("qwen2-7b", _dense(7.6, 28, 3584, 512)),
    ("qwen2.5-7b", _dense(7.6, 28, 3584, 512)),
    ("qwen1.5-7b", _dense(7.7, 32, 4096, 4096)),
)
# From the vendors' data sheets; the first entry found in the hardware's name counts, so longer names come first.
_ACCELERATORS: tuple[tuple[str, Accelerator], ...] = (
    ("a100-80", Accelerator(80, 2039, 312, 1)),
    ("a100", Accelerator(40, 1555, 312, 0)),
    ("a10g", Accelerator(24, 600, 125, 0)),
    ("a10", Accelerator(24, 600, 125, 0)),
    ("gb200", Accelerator(192, 8000, 2250, 1, 0.5, 1.35)),
    ("gb300", Accelerator(288, 8000, 2500, 1, 0.5, 1.35)),
    ("gh200", Accelerator(96, 4000, 989, 1, 1, 1.25)),
    ("h200", Accelerator(141, 4800, 989, 1, 1, 1.25)),
    ("h100", Accelerator(80, 3350, 989, 1, 1, 1.25)),
    ("b300", Accelerator(288, 8000, 2500, 1, 0.5, 1.35)),
    ("b200", Accelerator(192, 8000, 2250, 1, 0.5, 1.35)),
    ("l40", Accelerator(48, 864, 181, 0, 1)),
    ("l4", Accelerator(24, 300, 121, 0, 1)),
    ("t4", Accelerator(16, 300, 65, 0, 2, 0.95)),
    ("v100", Accelerator(16, 900, 112, 0, 2, 0.85)),
    ("rtx pro 6000", Accelerator(96, 1792, 500, 0, 0.5)),
    ("rtxpro6000", Accelerator(96, 1792, 500, 0, 0.5)),
    ("4090", Accelerator(24, 1008, 165, 0, 1)),
    ("mi300x", Accelerator(192, 5300, 1307, 1, 1)),
    ("mi250", Accelerator(128, 3277, 362, 1)),
    ("gaudi2", Accelerator(96, 2450, 432, 1, 1)),
    ("max 1550", Accelerator(128, 3277, 839, 1)),
    ("pvc", Accelerator(128, 3277, 839, 1)),
    ("sn40l", Accelerator(64, 1600, 638, 1)),
)
TYPICAL_PARAMS = 8.0  # billions; an engine of unknown model or accelerator is taken for a mid-sized model
TYPICAL_DEVICE = Accelerator(40, 1555, 312, 0)  # on an accelerator of the middle
_BILLIONS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)b(?![a-z])")
_ACTIVE = re.compile(r"a(\d+(?:\.\d+)?)b(?![a-z])")
_COUNT = re.compile(r"^(\d+)\s*x\s|\bx\s?(\d+)$|(?<!rt)x(\d+)$")

FACTS = (
    "params", "active", "layers", "width", "kv_width", "weight_bytes", "encoder_decoder",
    "memory", "bandwidth", "tflops", "nvlink", "narrow", "host", "devices",
)  # fmt: skip


@lru_cache(maxsize=1024)
def model_facts(name: str) -> ModelFacts:
    """Returns what is known of the model; NaN where its name says nothing. A shape that is unknown follows from the
    active parameters, as it does in the table's dense models: they grow as layers times width squared."""
    lower = name.lower().replace("_", "-").replace("meta-llama/meta-", "")
    facts = next((facts for key, facts in _MODELS if key in lower), None)
    if facts is None:
        size = _BILLIONS.search(lower.replace("-", " "))
        active = _ACTIVE.search(lower)
        params = float(size.group(1)) if size else NAN
        facts = _shaped(params, float(active.group(1)) if active else params)
    if "fp8" in lower or "int8" in lower:
        return replace(facts, weight_bytes=1.0)
    return replace(facts, weight_bytes=0.5) if "fp4" in lower or "awq" in lower or "int4" in lower else facts


def _shaped(params: float, active: float) -> ModelFacts:
    scale = active / 7.0
    return _experts(params, active, 32.0 * scale**0.4, 4096.0 * scale**0.3, 1024.0)


@lru_cache(maxsize=1024)
def accelerator(hardware: str) -> tuple[Accelerator, int]:
    """Returns the device that a hardware name states, and how many ("A100-40GBx2", "2 x A100"; 1 if not stated)."""
    lower = hardware.lower().strip()
    found = next((device for key, device in _ACCELERATORS if key in lower), Accelerator())
    count = _COUNT.search(lower)
    return found, max(1, int(next(filter(None, count.groups())))) if count else 1


def knows(query: CostQuery) -> bool:
    """Tells whether the size of the query's model and the bandwidth of its accelerator are known."""
    return not math.isnan(model_facts(query.model).active + accelerator(query.hardware)[0].bandwidth)


def architecture(model: str) -> str:
    """Returns a name that all models share which differ in nothing but the size of a weight: the first such key of the
    table, or else the model's own name."""
    shape = replace(model_facts(model), weight_bytes=NAN)
    return next(
        (key for key, known in _MODELS if astuple(replace(known, weight_bytes=NAN))[:5] == astuple(shape)[:5]), model
    )


def card(hardware: str) -> str:
    """Returns the accelerator's name without its memory's size or the number of devices; empty for an unknown one."""
    lower = hardware.lower()
    return next((key.removesuffix("-80") for key, _ in _ACCELERATORS if key in lower), "")


@lru_cache(maxsize=4096)
def facts(model: str, hardware: str) -> tuple[float, ...]:
    """Returns the numbers named in `FACTS`. An unknown model or accelerator is replaced by the typical one."""
    shape, (device, devices) = model_facts(model), accelerator(hardware)
    if math.isnan(shape.active):
        shape = replace(_shaped(TYPICAL_PARAMS, TYPICAL_PARAMS), weight_bytes=shape.weight_bytes)
    if math.isnan(device.bandwidth):
        device = TYPICAL_DEVICE
    return (*astuple(shape), *astuple(device), float(devices))
