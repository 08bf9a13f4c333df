"""An engine's limits: stated by the operator, read from its metrics, or derived from the measurements."""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.engine.core.profile import EngineLimits
from hmas.mesh.calibrate.measurement import Measurement
from hmas.worker.adapters import scrape

TELLING_USAGE = 0.03  # share of KV use below which the cache's size cannot be estimated well
DEFAULT_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Stated:
    """The limits that the operator states; None: to be found out. `kv_tokens` is the size of the KV cache."""

    max_num_seqs: int | None = None
    max_num_batched_tokens: int = 2048
    kv_tokens: int | None = None


def told_kv(page: bytes) -> tuple[int, int]:
    """Returns KV block size (tokens) and number of blocks as vLLM's metrics page states them; zeros if absent."""
    labels = scrape.labels_of(scrape.read_page(page), scrape.CACHE_CONFIG)
    try:
        return int(labels["block_size"]), int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return 0, 0


def seen_kv_tokens(measurements: Sequence[Measurement]) -> int | None:
    """Estimates the KV cache's size in tokens from the point with the highest use of it.

    Returns None if no point used enough of the cache for an estimate.
    """
    fullest = max(measurements, key=lambda m: m.kv_usage, default=None)
    if fullest is None or fullest.kv_usage < TELLING_USAGE:
        return None
    return int(fullest.held_tokens / fullest.kv_usage)


def seen_max_seqs(measurements: Sequence[Measurement]) -> int | None:
    """Returns the number of running requests beyond which others waited; None if no request ever waited."""
    full = [m.running for m in measurements if m.waiting > 0 and 0 < m.running < m.batch]
    return max(full, default=None)


def limits_of(
    page: bytes, max_model_len: int, measurements: Sequence[Measurement], stated: Stated
) -> tuple[EngineLimits, list[str]]:
    """Returns the engine's limits, and a remark on each limit that had to be assumed.

    `page` is the engine's metrics page. A stated limit outranks one in the metrics, which outranks an estimate.
    """
    remarks: list[str] = []
    block, blocks = told_kv(page)
    block = block or DEFAULT_BLOCK
    seen = seen_kv_tokens(measurements)
    tokens = stated.kv_tokens or blocks * block or seen
    if not tokens:
        tokens = 16 * max_model_len
        remarks.append(
            f"the KV cache's size could not be determined: {tokens} tokens are assumed; state it with --kv-tokens"
        )
    max_seqs = stated.max_num_seqs or seen_max_seqs(measurements)
    if not max_seqs:
        max_seqs = 256
        remarks.append("no limit on running sequences was reached: 256 is assumed; state it with --max-num-seqs")
    model_len = min(max_model_len, tokens)
    limits = EngineLimits(
        max_num_seqs=max_seqs,
        max_num_batched_tokens=max(stated.max_num_batched_tokens, max_seqs),
        block_size=block,
        num_gpu_blocks=-(-tokens // block),
        max_model_len=model_len,
    )
    return limits, remarks
