"""How long requests wait because memory is short: an engine of their lane has a free slot, and its KV memory is
promised to others."""

from collections.abc import Mapping

_NONE: Mapping[int, float] = {}  # one for all requests, where memory is never short


class MemoryWaits:
    """Adds up for each lane how long its first request did not fit the memory of an engine with a free slot, by which
    all behind it waited too. A change of the layout gives lanes other requests; what is told of one request is never
    more than it waited."""

    def __init__(self) -> None:
        self._totals: dict[int, float] = {}
        self._since: dict[int, float] = {}  # lanes that wait for memory now
        self._refused = False

    def ask(self) -> None:
        """Begins to look for an engine for one request."""
        self._refused = False

    def refuse(self) -> None:
        """Notes that an engine has no memory for that request."""
        self._refused = True

    def note(self, now_s: float, lane: int, *, waits: bool) -> None:
        """Notes whether the first request of a lane waits, of which `ask` and `refuse` told."""
        if waits and self._refused:
            self._since.setdefault(lane, now_s)
        elif lane in self._since:
            self._totals[lane] = self._total_s(now_s, lane)
            del self._since[lane]

    def totals(self, now_s: float) -> Mapping[int, float]:
        """Returns the seconds so far of every lane that ever waited for memory."""
        if not self._totals and not self._since:
            return _NONE
        return {lane: self._total_s(now_s, lane) for lane in self._totals.keys() | self._since.keys()}

    def waited_s(self, now_s: float, lane: int, before: Mapping[int, float], enqueued_s: float) -> float:
        """Returns for how long a request waited for memory that came to a lane at `enqueued_s`, when the `totals` were
        `before`."""
        return min(now_s - enqueued_s, max(0.0, self._total_s(now_s, lane) - before.get(lane, 0.0)))

    def _total_s(self, now_s: float, lane: int) -> float:
        return self._totals.get(lane, 0.0) + now_s - self._since.get(lane, now_s)
