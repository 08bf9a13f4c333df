"""Prompts that an engine has still to compute, and how fast it gets through them."""

from hmas.worker.agent.config import PrefillBacklogConfig
from hmas.worker.agent.entry import QueueEntry


class PrefillBacklog:
    """`seconds`: predicted prefill of the entries before the engine. `pace`: how many predicted seconds it gets
    through in one, as measured: less than 1 where it decodes besides; more where predictions are too long or prompts
    are computed side by side, so that the window, then, stands for real time: its fill over its delay, as of any pipe.
    """

    __slots__ = ("_busy_s", "_config", "_done_s", "_entries", "_since_s", "pace", "seconds")

    def __init__(self, config: PrefillBacklogConfig) -> None:
        self._config = config
        self._entries: dict[str, QueueEntry] = {}  # those whose prefill is still to come, as far as can be told
        self.seconds = 0.0
        self.pace = 1.0
        self._since_s = 0.0
        self._busy_s = 0.0
        self._done_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def entries(self) -> list[QueueEntry]:
        return list(self._entries.values())

    def admits(self, prefill_s: float, window_s: float) -> bool:
        """Whether so much predicted prefill more leaves at most `window_s` of real time before the engine, or has it
        alone."""
        return not self._entries or self.seconds + prefill_s <= window_s * max(1.0, self.pace)

    def add(self, now_s: float, entry: QueueEntry, prefill_s: float) -> None:
        if not self._entries:
            self._since_s = now_s
        self._entries[entry.request.id] = entry
        entry.pending_s = prefill_s
        self.seconds += prefill_s

    def remove(self, now_s: float, entry: QueueEntry, *, computed: bool) -> None:
        """Nothing for one that is not in. `computed`: its prefill was seen to be done, not given up or presumed."""
        if self._entries.pop(entry.request.id, None) is None:
            return
        self.seconds = self.seconds - entry.pending_s if self._entries else 0.0
        if computed:
            self._done_s += entry.pending_s
        self._busy_s += now_s - self._since_s
        self._since_s = now_s
        config = self._config
        if self._busy_s >= config.measure_s:
            measured = min(config.most_pace, self._done_s / self._busy_s)
            self.pace += config.smoothing * (measured - self.pace)
            self._busy_s = self._done_s = 0.0
