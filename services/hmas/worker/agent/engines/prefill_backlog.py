"""The prompts that an engine has yet to compute, and how fast it computes them."""

from hmas.worker.agent.config import PrefillBacklogConfig
from hmas.worker.agent.entry.entry import QueueEntry


class PrefillBacklog:
    """The dispatched requests of one engine whose prefill is still to come.

    `seconds` is the sum of their predicted prefill times. `pace` is how many predicted seconds of prefill the engine
    computes per real second, as measured: less than 1 where it decodes at the same time, more than 1 where predictions
    are too long or prompts are computed side by side. Divided by the pace, predicted seconds become real time.
    `wait_s` is by how much a first token has lately come later than the prompt's own prefill after its grant, in s.
    """

    __slots__ = ("_busy_s", "_computed", "_config", "_done_s", "_entries", "_since_s", "pace", "seconds", "wait_s")

    def __init__(self, config: PrefillBacklogConfig) -> None:
        self._config = config
        self._entries: dict[str, QueueEntry] = {}  # those whose prefill is still to come, as far as can be told
        self._computed = 0  # prompt tokens of all that have left the backlog
        self.seconds = self.wait_s = 0.0
        self.pace = 1.0
        self._since_s = 0.0
        self._busy_s = 0.0
        self._done_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def entries(self) -> list[QueueEntry]:
        return list(self._entries.values())

    def admits(self, prefill_s: float, window_s: float) -> bool:
        """Returns whether `prefill_s` more predicted seconds keep the backlog at or below `window_s` real seconds; an
        empty backlog takes a prompt of any length. A pace below 1 counts as 1."""
        return not self._entries or self.seconds + prefill_s <= window_s * max(1.0, self.pace)

    def add(self, now_s: float, entry: QueueEntry, prefill_s: float) -> None:
        if not self._entries:
            self._since_s = now_s
        self._entries[entry.request.id] = entry
        entry.pending_s, entry.computed_before = prefill_s, self._computed
        self.seconds += prefill_s

    def remove(self, now_s: float, entry: QueueEntry, *, computed: bool) -> None:
        """Takes `entry` out of the backlog, if it is there. `computed`: its prefill was seen to be done, so that it
        counts for the pace; false if it was abandoned or only presumed done."""
        if self._entries.pop(entry.request.id, None) is None:
            return
        self.seconds = self.seconds - entry.pending_s if self._entries else 0.0
        entry.others_tokens = self._computed - entry.computed_before
        self._computed += entry.computed_tokens
        if computed:
            self._done_s += entry.pending_s
            self._see_wait(now_s, entry)
        self._busy_s += now_s - self._since_s
        self._since_s = now_s
        config = self._config
        if self._busy_s >= config.measure_s:
            measured = min(config.most_pace, self._done_s / self._busy_s)
            self.pace += config.smoothing * (measured - self.pace)
            self._busy_s = self._done_s = 0.0

    def _see_wait(self, now_s: float, entry: QueueEntry) -> None:
        if entry.granted_s is not None:
            wait_s = min(self._config.most_wait_s, max(0.0, now_s - entry.granted_s - entry.prefill_s))
            self.wait_s += self._config.wait_smoothing * (wait_s - self.wait_s)
