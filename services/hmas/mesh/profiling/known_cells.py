"""The models and cards whose published measurements can be fitted, and what is known of them beside these."""

from dataclasses import dataclass

from hmas.mesh.profiling.silicon import SiliconKey

MEMORY_SHARE, OVERHEAD_GB = 0.9, 2.0  # of a card's memory, as vLLM's --gpu-memory-utilization; activations, per card
START_S, LOAD_GB_S = 60.0, 1.0  # assumed: to start without weights, and how fast these are read


@dataclass(frozen=True, slots=True)
class CardKind:
    """A card: its memory in GB (1e9 bytes) and the TB/s at which it reads it, by its data sheet."""

    hardware: str
    memory_gb: float
    tb_s: float


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's weights in GB, those that one token needs (`active_gb`), and the bytes of KV memory per token: 2 *
    layers * KV heads * head size * bytes of an element. Layers with a window count as those without."""

    weights_gb: float
    active_gb: float
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class ProfiledCell:
    """A model at a precision on one kind of card under one engine, on any number of cards. `model` is its name in the
    catalogue."""

    name: str
    model: str
    card: CardKind
    shape: ModelShape
    key: SiliconKey

    def kv_tokens(self, gpus: int) -> int:
        """Returns the tokens that the KV memory of so many cards holds; 0 or less if the weights do not fit."""
        free_gb = gpus * (MEMORY_SHARE * self.card.memory_gb - OVERHEAD_GB) - self.shape.weights_gb
        return int(free_gb * 1e9 / self.shape.kv_bytes)

    def weights_s(self, gpus: int) -> float:
        """Returns the seconds that reading the weights of one token takes, which no step falls below."""
        return self.shape.active_gb / (1000.0 * self.card.tb_s * gpus)

    @property
    def start_s(self) -> float:
        """The seconds from the order to start it until it serves; assumed."""
        return START_S + self.shape.weights_gb / LOAD_GB_S


H100, H200, B200 = CardKind("h100", 80, 3.35), CardKind("h200", 141, 4.8), CardKind("b200", 192, 8.0)
_LLAMA_70B, _QWEN, _OSS = 2 * 80 * 8 * 128 * 2, 2 * 64 * 8 * 128 * 2, 2 * 36 * 8 * 64 * 2  # bf16
QWEN_FP8 = ModelShape(33, 33, _QWEN // 2)  # with its KV memory in fp8
QWEN_BF16 = ModelShape(65.6, 65.6, _QWEN)
LLAMA_70B_FP8, LLAMA_70B_FP4 = ModelShape(71, 71, _LLAMA_70B), ModelShape(40, 40, _LLAMA_70B // 2)
LLAMA_8B_BF16, LLAMA_8B_FP8 = ModelShape(16, 15, 2 * 32 * 8 * 128 * 2), ModelShape(9, 8, 2 * 32 * 8 * 128 * 2)
OSS_FP4 = ModelShape(65, 2.7, _OSS)


def _cell(short: str, model: str, backend: str, precision: str, card: CardKind, shape: ModelShape) -> ProfiledCell:
    written = precision or "bf16"
    key = SiliconKey(model, f"{card.hardware}_sxm", backend, precision)
    return ProfiledCell(f"{short}-{written}-{backend}-{card.hardware}", f"{model}-{written}", card, shape, key)


_Q, _L, _O = "Qwen/Qwen3-32B", "meta-llama/Llama-3.1-70B", "openai/gpt-oss-120b"
SHIPPED_CELLS = (
    _cell("qwen3-32b", _Q, "trtllm", "fp8", H100, QWEN_FP8),
    _cell("qwen3-32b", _Q, "vllm", "", H100, QWEN_BF16),
    _cell("llama31-70b", _L, "vllm", "fp8", H100, LLAMA_70B_FP8),
    _cell("llama31-70b", _L, "vllm", "fp8", H200, LLAMA_70B_FP8),
    _cell("gpt-oss-120b", _O, "vllm", "fp4", H200, OSS_FP4),
)
OTHER_CELLS = (
    _cell("llama31-70b", _L, "trtllm", "fp8", H200, LLAMA_70B_FP8),
    _cell("llama31-70b", _L, "trtllm", "fp8", B200, LLAMA_70B_FP8),
    _cell("llama31-70b", _L, "trtllm", "fp4", B200, LLAMA_70B_FP4),
    _cell("llama31-70b", _L, "vllm", "fp4", B200, LLAMA_70B_FP4),
    _cell("gpt-oss-120b", _O, "vllm", "fp4", H100, OSS_FP4),
    _cell("gpt-oss-120b", _O, "trtllm", "fp4", H200, OSS_FP4),
    _cell("llama31-8b", "meta-llama/Llama-3.1-8B-Instruct", "trtllm", "", H100, LLAMA_8B_BF16),
    _cell("llama31-8b", "nvidia/Llama-3.1-8B-Instruct-FP8", "vllm", "fp8", H200, LLAMA_8B_FP8),
)
CELLS = {cell.name: cell for cell in (*SHIPPED_CELLS, *OTHER_CELLS)}
