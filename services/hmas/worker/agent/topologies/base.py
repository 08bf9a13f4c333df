"""What a queue topology is, and the half that the key-ordered ones share."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.keyed_heap import KeyedHeap
from hmas.worker.agent.service_view import ServiceView


class Topology(Protocol):
    """An order over queued requests (H-MAS App. C.2). Holds each entry once; sees no clock but that of `observe`.

    `pop` writes the entry's rank into `entry.urgency` (lower first; ranks compare within one topology only).
    """

    name: TopologyName
    accounts_service: bool  # whether `on_served` does anything
    paced: bool  # whether `observe` does anything

    def observe(self, view: ServiceView) -> None:
        """Time and service as they are now, before heads are asked for; what is popped until the next call comes on
        top. May change the order and mark entries as relegated."""
        ...

    def push(self, entry: QueueEntry) -> None: ...

    def peek(self) -> QueueEntry | None:
        """The entry that `pop` would give; stays the same until the topology changes. None: nothing is queued, or
        nothing of it should start now (asked again after every event, at least at each cycle)."""
        ...

    def pop(self) -> QueueEntry | None: ...

    def remove(self, entry: QueueEntry) -> None:
        """Take out `entry`, which must be in."""
        ...

    def reannotate(self, entry: QueueEntry) -> None:
        """The estimates of `entry`, which must be in, have changed."""
        ...

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        """Fill an empty topology with `entries`, given in arrival order; like pushing each, but O(n) where it can."""
        ...

    def promise_s(self, entry: QueueEntry) -> float | None:
        """How long until the queued `entry` finds a place if it comes again, promised; None: this order promises
        nothing."""
        ...

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        """An entry popped from here has received `tokens` weighted service tokens in all; no more if `final`."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[QueueEntry]:
        """The queued entries, in no particular order."""
        ...


class KeyOrdered:
    """A topology whose order is one number per request that time does not change: least `key` first, ties by arrival
    at the worker. Subclasses name themselves and give the key."""

    name: TopologyName
    accounts_service = False
    paced = False
    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: KeyedHeap[QueueEntry] = KeyedHeap()

    def key(self, entry: QueueEntry) -> float:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._heap)

    def observe(self, view: ServiceView) -> None:
        pass

    def push(self, entry: QueueEntry) -> None:
        self._heap.push(self.key(entry), entry)

    def peek(self) -> QueueEntry | None:
        return self._heap.peek()

    def pop(self) -> QueueEntry | None:
        item = self._heap.pop()
        if item is None:
            return None
        key, entry = item
        entry.urgency = key
        return entry

    def remove(self, entry: QueueEntry) -> None:
        self._heap.remove(entry)

    def reannotate(self, entry: QueueEntry) -> None:
        self._heap.rekey(self.key(entry), entry)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        self._heap.refill(entries, self.key)

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        pass
