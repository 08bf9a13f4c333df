"""The interface of a queue topology, and the base class of those whose order is one number per request that time does
not change."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from hmas.contracts.control import TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap


class Topology(Protocol):
    """An order over queued requests (H-MAS App. C.2). It holds each entry once and knows no time but that of `observe`.

    `pop` writes the entry's rank into `entry.urgency` (lower first; only ranks of the same topology can be compared).
    """

    name: TopologyName
    accounts_service: bool  # whether `on_served` does anything
    paced: bool  # whether `observe` does anything
    sets_aside: bool  # whether it sets aside what cannot be on time, so that others do not wait behind that
    uses_tags: bool  # whether predictions change the order, so that a request may wait a moment for its tags

    def observe(self, view: ServiceView) -> None:
        """Takes the present time and load of the engines, before requests are dispatched.

        It may change the order and mark entries as relegated. `view` does not include what is popped after the call.
        """
        ...

    def push(self, entry: QueueEntry) -> None:
        """Takes in `entry`. If it comes relegated, another lane's order has given it up, and so does this one."""
        ...

    def peek(self) -> QueueEntry | None:
        """Returns the entry that `pop` would return; it stays the same until the topology changes.

        None: nothing is queued, or nothing should start now (the worker asks again after every event and at each
        cycle).
        """
        ...

    def pop(self) -> QueueEntry | None: ...

    def remove(self, entry: QueueEntry) -> None:
        """Takes `entry`, which must be queued here, out of the order."""
        ...

    def reannotate(self, entry: QueueEntry) -> None:
        """Gives `entry`, which must be queued here, the place that its changed estimates entitle it to."""
        ...

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        """Fills an empty topology with `entries`, given in order of arrival; as if each were pushed, but in O(n) where
        possible."""
        ...

    def late(self) -> Sequence[QueueEntry]:
        """Returns queued entries, a bounded number at a time, that it has given up because they cannot be on time."""
        ...

    def promise_s(self, entry: QueueEntry) -> float | None:
        """Returns the seconds after which the queued `entry`, if refused now, may come again and is then given up last.

        None: this topology makes no such promises.
        """
        ...

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        """Records that an entry popped from here has received `tokens` weighted service tokens in all, and receives no
        more if `final`."""
        ...

    def why(self, entry: QueueEntry, now_s: float) -> str:
        """Returns what put `entry`, which was popped here last or is held back, in its place, in a few words that
        operators read; changes nothing."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[QueueEntry]:
        """The queued entries, in no particular order."""
        ...


class KeyOrdered:
    """A topology that orders by one number per request, which time does not change.

    The least `key` comes first, ties by arrival at the worker. Subclasses set `name` and define `key`; they should say
    `why`, and set `uses_tags` to False where no prediction changes the key.
    """

    name: TopologyName
    accounts_service = False
    paced = False
    sets_aside = False
    uses_tags = True
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

    def late(self) -> Sequence[QueueEntry]:
        return ()

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        pass

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"by its rank {entry.urgency:.4g}"
