"""Relegated requests, which are set aside for the rest, and their claim on service, which grows with age.

While others wait, the oldest relegated request earns a share of their service: `share` plus `growth_per_s` times its
age, at most `most_share`, so that none starves under an overload that lasts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from hmas.worker.agent.entry.entry import QueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RelegatedConfig:
    """The claim of the oldest relegated request, as shares of the service of the others."""

    share: float = 0.0025
    growth_per_s: float = 0.0025 / 60.0  # of its age
    most_share: float = 0.05


class Relegated:
    """The relegated requests of a topology in order of arrival, each with its work (in the topology's unit).

    It does not use `rank`, so an entry may be in a `KeyedHeap` at the same time.
    """

    __slots__ = ("_config", "_credit", "_held", "_items")

    def __init__(self, config: RelegatedConfig) -> None:
        self._config = config
        self._held: dict[int, tuple[QueueEntry, float]] = {}  # by seq
        self._items: list[tuple[float, int]] = []  # (arrival, seq), some of which left
        self._credit = 0.0  # work owed to the oldest

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for entry, _ in self._held.values())

    def add(self, entry: QueueEntry, work: float) -> None:
        entry.relegated = True
        if entry.seq not in self._held:
            heappush(self._items, (entry.request.arrival_s, entry.seq))
        self._held[entry.seq] = entry, work

    def remove(self, entry: QueueEntry) -> float:
        """Takes out `entry` and returns its work. Raises KeyError if it is not relegated here."""
        work = self._held.pop(entry.seq)[1]
        entry.has_turn = False
        if len(self._items) > 2 * len(self._held) + 64:
            self._items = [(entry.request.arrival_s, seq) for seq, (entry, _) in self._held.items()]
            heapify(self._items)
        return work

    def work(self, entry: QueueEntry) -> float:
        return self._held[entry.seq][1]

    def oldest(self) -> QueueEntry | None:
        """Returns the request that arrived first, or None if there is none."""
        while self._items and self._items[0][1] not in self._held:
            heappop(self._items)
        return self._held[self._items[0][1]][0] if self._items else None

    def claimant(self) -> QueueEntry | None:
        """Returns the oldest request if it has earned as much credit as its work, so that it is next; else None."""
        oldest = self.oldest()
        if oldest is None:
            self._credit = 0.0
            return None
        oldest.has_turn = 0.0 < self._credit >= self.work(oldest)
        return oldest if oldest.has_turn else None

    def earn(self, now_s: float, work: float) -> None:
        """Credits the oldest request with its share of `work`, which was served to requests that are not relegated."""
        if (oldest := self.oldest()) is not None:
            config, age_s = self._config, max(0.0, now_s - oldest.request.arrival_s)
            self._credit += work * min(config.most_share, config.share + config.growth_per_s * age_s)

    def spend(self, work: float) -> None:
        """Takes `work`, which was served to a relegated request, off the credit."""
        self._credit = max(0.0, self._credit - work)
