"""The admission gate: whether an engine has KV memory for one more request (H-MAS Eq. 2 and 4, §3.5)."""

from bisect import bisect_left

from hmas.contracts.control import Fence
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry

NO_FENCE = Fence()
UNFENCED = 100.0  # of the memory that there is: more than what runs ever asks for


class AdmissionGate:
    """Decides whether a request fits an engine's KV memory beside the requests that run there.

    It fits if all of them together never hold more than M_cap (1 - delta_frag), counted in whole KV blocks, when each
    answers up to the tokens reserved for it. Eq. 2 adds up what each of them holds at its end, although most have left
    before the last one ends; where that sum exceeds the budget, its peak over time decides (`memory_peak.py`).
    A small request may fill the margin delta_frag (`EngineState.memory_for`).

    l_upper = min(l_90 · q_b, max_tokens), with l_90 the predicted 90 % quantile of the request's length, and q_b the
    fence's factor for the bucket of its prompt's length, its tenant's own where the fence has one; 1 if the fence was
    not calibrated for the predictor that tagged the request. A reservation above the whole budget is cut to it: such a
    request runs alone.
    """

    def __init__(self, *, delta_frag: float, growth: float, fenced: bool = True) -> None:
        self._delta_frag = delta_frag
        self._fenced = fenced
        self._growth = growth
        self.adopt(NO_FENCE)

    def adopt(self, fence: Fence) -> None:
        self._fence = fence
        self._tables = {
            (table.version, table.tenant): (
                [b.prompt_upto for b in table.buckets],
                [b.factor for b in table.buckets],
                [min(b.shared or b.factor, b.factor) for b in table.buckets],
            )
            for table in fence.tables
            if table.buckets
        }

    def budget_blocks(self, engine: EngineState) -> int:
        """Returns M_cap (1 - delta_frag) in KV blocks, or 0 if the engine does not report its capacity."""
        share = 1.0 - self._delta_frag if self._fenced else UNFENCED
        return int(engine.info.kv_capacity_tokens * share) // engine.block_size

    def upper(self, entry: QueueEntry) -> float:
        """Returns l_upper in output tokens: at least 1, and at least the tokens that `entry` has produced so far."""
        return self._bound(entry, 1)

    def reserved(self, entry: QueueEntry) -> float:
        """Returns the output tokens for which memory is reserved: at most l_upper, which few of many requests come near
        at once."""
        return self._bound(entry, 2)

    def _bound(self, entry: QueueEntry, column: int) -> float:
        upper = entry.predicted_p90
        version, tables = entry.predictor, self._tables
        if (table := tables.get((version, entry.request.tenant)) or tables.get((version, ""))) is not None:
            edges, factors = table[0], table[column]
            upper *= factors[min(bisect_left(edges, entry.request.prompt_tokens), len(edges) - 1)]
        return self._limited(entry, upper)

    def grown(self, entry: QueueEntry) -> float:
        """Returns the output tokens to reserve for a running request that has produced more than were reserved.

        That is l_upper, or for one that has outgrown it too, the larger of the fence's rolling bound and `growth` times
        the tokens produced (H-MAS App. C.2).
        """
        if entry.output_tokens < entry.upper_output_tokens:
            return entry.upper_output_tokens
        return self._limited(entry, max(self._fence.rolling_upper, self._growth * entry.output_tokens + 1.0))

    def _limited(self, entry: QueueEntry, upper: float) -> float:
        limit = entry.request.max_tokens
        if limit is not None and limit < upper:
            upper = float(limit)
        return max(upper, float(entry.output_tokens), 1.0)

    def need(self, engine: EngineState, entry: QueueEntry, output_tokens: float) -> int:
        """Returns m_KV: the KV blocks for the prompt and `output_tokens` on `engine`, at most its budget."""
        info = engine.info
        tokens = entry.request.prompt_tokens + output_tokens
        if info.max_model_len:
            tokens = min(tokens, info.max_model_len)
        blocks = int(-(-tokens // engine.block_size))
        return min(blocks, engine.budget_blocks) if engine.budget_blocks else blocks

    def admits(self, now_s: float, engine: EngineState, entry: QueueEntry, blocks: int) -> bool:
        """Returns whether `engine` has room for `entry`, which holds `blocks` KV blocks at its end. An engine that
        does not report its capacity always has."""
        if not engine.budget_blocks:
            return True
        budget = engine.memory_for(entry, blocks)
        return engine.books.blocks + blocks <= budget or engine.books.peak_fits(now_s, entry, blocks, budget)

    def could_ever(self, engine: EngineState, prompt_tokens: int) -> bool:
        """Returns whether a prompt of that length and one output token would fit `engine` if nothing ran there."""
        info = engine.info
        tokens = prompt_tokens + 1
        if info.max_model_len and tokens > info.max_model_len:
            return False
        return not engine.budget_blocks or -(-tokens // engine.block_size) <= engine.budget_blocks

    def explain_never(self, engines: list[EngineState], prompt_tokens: int) -> str:
        """Returns the error message for a prompt that fits none of `engines`, even if they are idle."""
        limits = "; ".join(
            f"{e.name}: context {e.info.max_model_len or 'unknown'} tokens, KV cache "
            f"{e.budget_blocks * e.block_size or 'unknown'} tokens"
            f" ({self._delta_frag:.0%} of {e.info.kv_capacity_tokens} kept free)"
            for e in engines
        )
        return (
            f"the prompt (about {prompt_tokens} tokens) and one output token can never fit an engine of this worker: "
            f"{limits}. Shorten the prompt."
        )
