"""An engine's limits: told by its metrics or the operator, else derived from what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.engine.core.profile import EngineLimits
from hmas.mesh.calibrate.measurement import Measurement
from hmas.worker.adapters import scrape

TELLING_USAGE = 0.03  # a smaller share of KV use says too little about the whole
DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Stated:
    """What the operator states; None: find out."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    kv_tokens: int | None = None


def told_kv(page: bytes) -> tuple[int, int]:
    """Block size and number of blocks from vLLM's metrics; zeros where it tells none."""
    labels = scrape.labels_of(page, "vllm:cache_config_info")
    try:
        return int(labels["block_size"]), int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return 0, 0


def seen_kv_tokens(measurements: Sequence[Measurement]) -> int | None:
    """Capacity from tokens held and the share of the cache they took, at the fullest point."""
    fullest = max(measurements, key=lambda m: m.kv_usage, default=None)
    if fullest is None or fullest.kv_usage < TELLING_USAGE:
        return None
    return int(fullest.held_tokens / fullest.kv_usage)


def seen_max_seqs(measurements: Sequence[Measurement]) -> int | None:
    """The running requests beyond which some waited; None if none ever did."""
    full = [m.running for m in measurements if m.waiting > 0 and 0 < m.running < m.batch]
    return max(full, default=None)


def limits_of(
    page: bytes, max_model_len: int, measurements: Sequence[Measurement], stated: Stated
) -> tuple[EngineLimits, list[str]]:
    """The limits, and remarks on those that are guesses."""
    remarks: list[str] = []
    block, blocks = told_kv(page)
    block = block or DEFAULT_BLOCK
    seen = seen_kv_tokens(measurements)
    tokens = stated.kv_tokens or blocks * block or seen
    if not tokens:
        tokens = 16 * max_model_len
        remarks.append(f"the KV cache's size could not be seen: {tokens} tokens assumed, give --kv-tokens")
    max_seqs = stated.max_num_seqs or seen_max_seqs(measurements)
    if not max_seqs:
        max_seqs = 256
        remarks.append("no bound on sequences was met: 256 assumed, give --max-num-seqs")
    model_len = min(max_model_len, tokens)
    limits = EngineLimits(
        max_num_seqs=max_seqs,
        max_num_batched_tokens=max(stated.max_num_batched_tokens, max_seqs),
        block_size=block,
        num_gpu_blocks=-(-tokens // block),
        max_model_len=model_len,
    )
    return limits, remarks
