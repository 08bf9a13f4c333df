"""The admission gate: the calibrated memory fence over requests in flight (H-MAS Eq. 2 and 4, §3.5)."""

from bisect import bisect_left

from hmas.contracts.control import Fence
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import QueueEntry

NO_FENCE = Fence(version="")


class AdmissionGate:
    """Admits while what runs will at no time hold more than M_cap (1 - delta_frag), in whole KV blocks, if each answers
    up to its bound l_upper. Eq. 2 adds up what all hold in the end, but most have left before the last one ends; where
    that sum does not fit, its peak over time decides (`memory_peak.py`).

    l_upper = min(l_pred + q_b, max_tokens), q_b by prompt length, if the fence was calibrated for the predictor that
    tagged the request; else the prediction's own 90 % quantile. A bound above the whole budget is cut to it: such a
    request runs alone.
    """

    def __init__(self, *, delta_frag: float, growth: float) -> None:
        self._delta_frag = delta_frag
        self._growth = growth
        self.adopt(NO_FENCE)

    def adopt(self, fence: Fence) -> None:
        self._fence = fence
        self._edges = [bucket.prompt_upto for bucket in fence.buckets]

    def budget_blocks(self, engine: EngineState) -> int:
        """M_cap (1 - delta_frag) in blocks; 0 where the engine does not tell its capacity."""
        return int(engine.info.kv_capacity_tokens * (1.0 - self._delta_frag)) // engine.block_size

    def upper(self, entry: QueueEntry) -> float:
        """l_upper, output tokens; at least what was produced, at least 1."""
        edges = self._edges
        if edges and entry.predictor == self._fence.version:
            index = min(bisect_left(edges, entry.request.prompt_tokens), len(edges) - 1)
            upper = entry.predicted_tokens + self._fence.buckets[index].quantile
        else:
            upper = max(entry.predicted_tokens, entry.predicted_p90)
        return self._limited(entry, upper)

    def grown(self, entry: QueueEntry) -> float:
        """The rolling conservative estimate for a running request that outgrew its bound (App. C.2)."""
        return self._limited(entry, max(self._fence.rolling_upper, self._growth * entry.output_tokens + 1.0))

    def _limited(self, entry: QueueEntry, upper: float) -> float:
        limit = entry.request.max_tokens
        if limit is not None and limit < upper:
            upper = float(limit)
        return max(upper, float(entry.output_tokens), 1.0)

    def need(self, engine: EngineState, entry: QueueEntry, upper: float) -> int:
        """m_KV: blocks for prompt and `upper` output tokens on this engine, at most its budget."""
        info = engine.info
        tokens = entry.request.prompt_tokens + upper
        if info.max_model_len:
            tokens = min(tokens, info.max_model_len)
        blocks = int(-(-tokens // engine.block_size))
        return min(blocks, engine.budget_blocks) if engine.budget_blocks else blocks

    def admits(self, now_s: float, engine: EngineState, entry: QueueEntry, blocks: int) -> bool:
        """Whether there is room for `entry`, which needs so many `blocks` in the end."""
        budget = engine.budget_blocks
        if not budget or engine.blocks + blocks <= budget:
            return True
        return engine.peak_with(now_s, entry, blocks) <= budget

    def could_ever(self, engine: EngineState, prompt_tokens: int) -> bool:
        """Whether the prompt and one output token fit the idle engine."""
        info = engine.info
        tokens = prompt_tokens + 1
        if info.max_model_len and tokens > info.max_model_len:
            return False
        return not engine.budget_blocks or -(-tokens // engine.block_size) <= engine.budget_blocks

    def explain_never(self, engines: list[EngineState], prompt_tokens: int) -> str:
        """For a request that `could_ever` fit none of `engines`."""
        limits = "; ".join(
            f"{e.name}: context {e.info.max_model_len or 'unknown'} tokens, KV cache "
            f"{e.budget_blocks * e.block_size or 'unknown'} tokens"
            f" ({self._delta_frag:.0%} of {e.info.kv_capacity_tokens} kept free)"
            for e in engines
        )
        return (
            f"a prompt of about {prompt_tokens} tokens and one output token can never fit: {limits}. "
            "Shorten the prompt."
        )
