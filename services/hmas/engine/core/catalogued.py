"""Emulates an instance type of a catalogue."""

from hmas.contracts.pool_plan import InstanceType
from hmas.engine.core.profile import EngineLimits, EngineProfile

BLOCK_SIZE = 16


def profile_of(kind: InstanceType) -> EngineProfile:
    """Returns the profile of an emulated engine of that type. Its context is as long as its KV memory."""
    blocks = max(1, kind.kv_tokens // BLOCK_SIZE)
    return EngineProfile(
        name=kind.name,
        cost=kind.step,
        limits=EngineLimits(
            max_num_seqs=kind.max_num_seqs,
            max_num_batched_tokens=kind.max_num_batched_tokens,
            block_size=BLOCK_SIZE,
            num_gpu_blocks=blocks,
            max_model_len=min(32768, blocks * BLOCK_SIZE),
        ),
        source=f"instance type, {kind.origin.value}",
        model=kind.model,
        hardware=f"{kind.hardware}x{kind.gpus}",
    )
