"""The models that share a card: what they take of it, how fast they are, and what moving them costs.

Weights and contexts are those of Maestro's Table V. A step reads the weights at 1.3 TB/s and takes 5 ms more, a token
of a sequence reads its KV; prompts are computed at 150 TFLOP/s. The seconds of moves follow those that vLLM's blog
published of its sleep mode (A100, level 1, 2025-10-26): GB of weights / 22 + 0.04 to sleep, / 23 + 0.21 to wake. Its
cold starts took 38 to 58 s whatever the size.
"""

from dataclasses import dataclass
from functools import cache

from hmas.contracts.residency import ResidentEngine
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.profile import EngineLimits, EngineProfile

READ_GB_S, FLOPS, STEP_S, SEQUENCE_S = 1300.0, 150e12, 0.005, 1e-4
COLD_S, KILL_S = 48.0, 1.0
BLOCK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CardModel:
    """A model: billions of parameters, GB of weights, context and KV cache, and the bytes of a token's KV."""

    name: str
    billions: float
    weights_gb: float
    context_gb: float
    kv_gb: float
    token_bytes: int

    @property
    def profile(self) -> EngineProfile:
        return _profile(self)

    def engine(self, *, restarts: bool = False) -> ResidentEngine:
        """Returns the engine as the arbiter gets it. `restarts`: its process ends instead of sleeping."""
        awake_gb = self.weights_gb + self.context_gb + self.kv_gb
        return ResidentEngine(
            engine=self.name, card="card", awake_gb=awake_gb, asleep_gb=0.0 if restarts else self.context_gb,
            sleep_s=KILL_S if restarts else self.weights_gb / 22.0 + 0.04,
            wake_s=COLD_S if restarts else self.weights_gb / 23.0 + 0.21, start_s=COLD_S, interrupts=not restarts,
        )  # fmt: skip


@cache
def _profile(model: CardModel) -> EngineProfile:
    cost = StepCostModel(
        c0_s=model.weights_gb / READ_GB_S + STEP_S, c_p_s=2e9 * model.billions / FLOPS, c_d_s=SEQUENCE_S,
        c_k_s=model.token_bytes / (1e9 * READ_GB_S),
    )  # fmt: skip
    blocks = int(1e9 * model.kv_gb / model.token_bytes) // BLOCK
    limits = EngineLimits(num_gpu_blocks=blocks, block_size=BLOCK, max_model_len=16384, max_num_batched_tokens=2048)
    return EngineProfile(name=model.name, cost=cost, limits=limits, source="chosen")


def _qwen(size: str, billions: float, weights_gb: float, context_gb: float, kv_gb: float, kib: int) -> CardModel:
    return CardModel(
        name=size, billions=billions, weights_gb=weights_gb, context_gb=context_gb, kv_gb=kv_gb, token_bytes=1024 * kib
    )


QWEN3 = (
    _qwen("0.6b", 0.6, 1.12, 0.194, 2.0, 112),
    _qwen("1.7b", 1.7, 3.21, 0.194, 3.0, 112),
    _qwen("4b", 4.0, 7.55, 0.256, 6.0, 144),
    _qwen("8b", 8.2, 15.27, 0.245, 6.0, 144),
    _qwen("14b", 14.8, 27.52, 0.286, 6.0, 160),
)
TWELVE = tuple(_qwen(f"8b-{i:02d}", 8.2, 15.27, 0.245, 3.5, 144) for i in range(12))
INTENT = "0.6b"
# Which model speaks for a role: the larger one writes long texts and code, the smaller ones call tools and translate.
OF_ROLE = {
    "booking": "4b", "booking says": "8b", "food": "4b", "food says": "8b", "planner": "8b", "writer": "14b",
    "reviewer": "8b", "supervisor": "8b", "reporter": "4b", "editor": "14b", "analyst": "8b", "solver": "14b",
    "answerer": "4b", "translator": "1.7b", "travel": "4b", "guide": "8b", "coder": "14b", "tester": "8b",
}  # fmt: skip
