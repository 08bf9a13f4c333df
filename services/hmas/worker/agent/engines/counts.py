"""What an engine's own samples say, beside the worker's books of it."""

from math import inf

from hmas.contracts.worker import EngineSampled
from hmas.worker.agent.config import EngineStateConfig
from hmas.worker.agent.engines.books import EngineBooks


class EngineCounts:
    """The last sample of an engine, and by what it differs from the books.

    `foreign` is what the engine runs beyond the books by its own count, for a gateway that the worker cannot hear or
    for a stranger, and `foreign_blocks` are the KV blocks that these hold. `in_flight` counts them and those in the
    books. `missing`: requests in the books that the last sample did not show.
    """

    __slots__ = (
        "_books", "_config", "_excess", "foreign", "foreign_blocks", "grew", "in_flight", "missing", "sample",
        "sampled_s", "unread",
    )  # fmt: skip

    def __init__(self, config: EngineStateConfig, books: EngineBooks) -> None:
        self._config = config
        self._books = books
        self.sample: EngineSampled | None = None
        self.sampled_s = -inf
        self.unread = False  # the flow regulator has not used `sample` yet
        self.grew = False  # the engine's own counters have changed since that was last told
        self.in_flight = 0
        self.restart()

    def restart(self) -> None:
        """Forgets what was counted of an earlier start of the engine."""
        self._excess = inf  # what the last sample counted beyond the books; there is none yet, and the first one counts
        self.foreign = self.foreign_blocks = self.missing = 0

    def add_up(self) -> None:
        self.in_flight = len(self._books.running) + self.foreign

    def adopt_one(self) -> None:
        """Takes one of the foreign requests for one that the books have from now on."""
        if self.foreign:
            self.foreign_blocks -= self.foreign_blocks // self.foreign
            self.foreign -= 1

    def take(self, now_s: float, sample: EngineSampled) -> None:
        """Takes a sample, which shows the engine at `now_s`."""
        if sample.counted:
            held = 0.0 if self.sample is None else self.sample.kv_usage
            self.grew |= (
                sample.decode_tokens_per_s > 0.0 or sample.prefill_tokens_per_s > 0.0 or sample.kv_usage != held
            )
        self.sample, self.sampled_s, self.unread = sample, now_s, True

    def compare(self, now_s: float, sample: EngineSampled, kv_capacity_tokens: int, settled_s: float) -> int:
        """Compares a sample of `now_s` with the books, and returns how many requests of the books the engine does not
        have.

        Books and engine differ for a moment whenever a request begins or ends. Therefore a difference counts if two
        samples in a row show it, and a grant is looked for once it is older than `settled_s` seconds, as is its prompt
        where another engine computed it. The first sample since the engine came up counts at once.
        """
        running, awaited = self._books.running, self._books.awaited
        count = sample.running + sample.waiting
        excess = max(0, count - len(running) + sum(since_s == inf for since_s in awaited.values()))
        self.foreign = int(min(excess, self._excess))
        self._excess = excess
        held = sample.kv_usage * kv_capacity_tokens / self._books.block_size
        self.foreign_blocks = int(held * self.foreign / count) if count else 0
        settled = sum(
            1
            for name, entry in running.items()
            if entry.granted_s is not None and now_s - max(entry.granted_s, awaited.get(name, -inf)) > settled_s
        )
        missing = max(0, settled - count)
        gone, self.missing = min(missing, self.missing), missing
        return gone

    @property
    def stands_still(self) -> bool:
        """Whether the last sample of its own counters shows that no token was computed since the one before."""
        sample = self.sample
        if sample is None or not sample.counted:
            return False
        return sample.decode_tokens_per_s == 0.0 and sample.prefill_tokens_per_s == 0.0

    def generating(self, now_s: float) -> bool | None:
        """Returns whether the engine's own counters have changed since that was last told; None if they are unknown or
        were read too long ago."""
        known = self.sample is not None and self.sample.counted
        return self.grew if known and now_s - self.sampled_s <= self._config.counters_fresh_s else None

    def measured(self, now_s: float) -> bool:
        """Returns whether the engine's last sample is recent enough to regulate by."""
        return now_s - self.sampled_s <= self._config.sample_fresh_s

    def step_now_s(self, now_s: float) -> float:
        """Returns what a step takes by the last sample; 0 if the engine is idle, or the sample is old."""
        return self.sample.step_s if self.sample is not None and self.in_flight and self.measured(now_s) else 0.0
