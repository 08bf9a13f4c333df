"""The worker's books of one engine: which requests run there, the memory that they reserve, and the prompts that the
engine has yet to compute."""

from math import inf

from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.memory_peak import MemoryPeak
from hmas.worker.agent.engines.prefill_backlog import PrefillBacklog
from hmas.worker.agent.entry.entry import QueueEntry


class EngineBooks:
    """The requests that the worker has granted on an engine, or that gateways say run there.

    `blocks` is the sum of the KV blocks that each of them holds at its end, `contexts` that of the tokens of context
    that each has in the middle of its answer. `kept_blocks` hold prompts that other engines are to read. `awaited` are
    those of `running` whose prompts other engines compute, and since when each may be here: infinite until it is.
    `block_size`: tokens in a KV block.
    """

    __slots__ = (
        "_busy_s", "_busy_since_s", "_config", "_peak", "_peak_left", "_peak_outgrown", "_peak_s", "awaited",
        "block_size", "blocks", "contexts", "decoding", "kept_blocks", "prefill", "running",
    )  # fmt: skip

    def __init__(self, config: EngineStateConfig, block_size: int) -> None:
        self._config = config
        self.block_size = block_size
        self.running: dict[str, QueueEntry] = {}  # by request id
        self.decoding = 0  # how many of `running` have a first token
        self.prefill = PrefillBacklog(config.prefill)
        self.blocks = self.kept_blocks = 0
        self.contexts = 0.0
        self._peak = MemoryPeak(())  # of `running`, as forecast at `_peak_s`
        self._peak_s = -inf
        self._peak_outgrown = False  # a request outgrew its bound since, so that the forecast may be too low
        self._peak_left = False  # a request left since, so that the forecast may be too high
        self._busy_s = 0.0
        self._busy_since_s = 0.0
        self.awaited: dict[str, float] = {}

    def occupy(self, now_s: float, entry: QueueEntry, prefill_s: float | None) -> None:
        """Takes in a granted request. `prefill_s`: predicted seconds that its prompt adds to the engine's steps; None:
        another engine computes it."""
        if not self.running:
            self._busy_since_s = now_s
        self.running[entry.request.id] = entry
        self.blocks += entry.blocks
        self.count_context(entry)
        self._peak.add(*_growth(entry, entry.blocks * self.block_size, self.block_size))
        if prefill_s is None:
            self.awaited[entry.request.id] = inf
        else:
            self.prefill.add(now_s, entry, prefill_s)

    def expect(self, now_s: float, entry: QueueEntry) -> None:
        """Records that the prompt of `entry` is computed, so that it may come now."""
        if entry.request.id in self.awaited:
            self.awaited[entry.request.id] = now_s

    def began(self, now_s: float, entry: QueueEntry) -> None:
        """Records that `entry` has its first token."""
        entry.first_token_s = now_s
        self.produced(entry, 1)
        self.decoding += 1
        self.awaited.pop(entry.request.id, None)
        self.prefill.remove(now_s, entry, computed=True)

    def produced(self, entry: QueueEntry, output_tokens: int) -> bool:
        """Records that `entry` has produced `output_tokens` in all; a lower number than before is ignored. Returns
        whether its context is counted anew."""
        if output_tokens <= entry.output_tokens:
            return False
        entry.output_tokens = output_tokens
        if not entry.request.prompt_tokens + output_tokens > entry.context_tokens > 0.0:
            return False
        self.count_context(entry)
        return True

    def count_context(self, entry: QueueEntry) -> None:
        """Counts the context of `entry`: that of half of its answer as it is predicted now, or what it has, if that is
        more."""
        before = entry.context_tokens
        entry.context_tokens = entry.mean_context
        self.contexts += entry.context_tokens - before

    def release(self, now_s: float, entry: QueueEntry) -> None:
        del self.running[entry.request.id]
        self.awaited.pop(entry.request.id, None)
        self.blocks -= entry.blocks
        self.contexts = self.contexts - entry.context_tokens if self.running else 0.0
        entry.blocks, entry.context_tokens = 0, 0.0
        self._peak_left = True
        if entry.first_token_s is None:
            self.prefill.remove(now_s, entry, computed=entry.output_tokens > 0)
        else:
            self.decoding -= 1
        if not self.running:
            self._busy_s += now_s - self._busy_since_s

    def reserve(self, entry: QueueEntry, blocks: int) -> None:
        """Changes the reservation of `entry` to `blocks` KV blocks at its end."""
        self.blocks += blocks - entry.blocks
        entry.blocks = blocks
        self._peak_outgrown = True

    def peak_fits(self, now_s: float, entry: QueueEntry, blocks: int, budget: int) -> bool:
        """Returns whether the running requests and `entry` will never hold more than `budget` KV blocks at once, if
        `entry` began now and held `blocks` at its end.

        While nobody outgrows a bound, a forecast stays one as time passes and requests leave: it only becomes too high.
        So it is made anew where it says no, or is old.
        """
        size, age_s = self.block_size, now_s - self._peak_s
        growth = _growth(entry, blocks * size, size)
        if not self._peak_outgrown and age_s <= self._config.peak_kept_s:
            if self._peak.with_another(*growth) <= budget * size:
                return True
            if not self._peak_left and age_s <= self._config.peak_fresh_s:
                return False
        self._forecast(now_s)
        return self._peak.with_another(*growth) <= budget * size

    def peak_blocks(self, now_s: float) -> int:
        """Returns the most KV blocks that those that run will hold at once, by a forecast that may be `peak_kept_s`
        old."""
        if now_s - self._peak_s > self._config.peak_kept_s:
            self._forecast(now_s)
        return int(self._peak.tokens / self.block_size)

    def _forecast(self, now_s: float) -> None:
        size = self.block_size
        rows = []
        for entry in self.running.values():  # `_growth`, written out: this is done for every engine in every cycle
            held = entry.request.prompt_tokens + entry.output_tokens
            last = entry.blocks * size
            rows.append((last - held if last > held else 0, held + size - 1))
        self._peak = MemoryPeak(rows)
        self._peak_s, self._peak_outgrown, self._peak_left = now_s, False, False

    def presume(self, now_s: float) -> None:
        """Counts prefills as done whose first token cannot be seen because the answer is not streamed.

        It does so once a request has run for `presumed` times its predicted time to first token.
        """
        for entry in self.prefill.entries():
            since_s = now_s if entry.granted_s is None else entry.granted_s
            if not entry.request.stream and now_s - since_s > self._config.presumed * (entry.prefill_s + entry.tpot_s):
                self.prefill.remove(now_s, entry, computed=False)

    def take_busy_s(self, now_s: float) -> float:
        """Returns the seconds since the last call during which at least one request ran here."""
        busy_s, self._busy_s = self._busy_s, 0.0
        if self.running:
            busy_s += now_s - self._busy_since_s
            self._busy_since_s = now_s
        return busy_s


def _growth(entry: QueueEntry, last: int, block: int) -> tuple[int, int]:
    """Returns (left, held): the tokens that `entry` has yet to grow by, and those that it holds now.

    `last`: tokens that it holds at its end. `held` counts the newest KV block in full, as it is taken with its first
    token.
    """
    held = entry.request.prompt_tokens + entry.output_tokens
    return max(0, last - held), held + block - 1
