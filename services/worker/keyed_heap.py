"""A binary heap of keyed values with removal and change of key, by lazy deletion over `heapq`."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar


class Placed(Protocol):
    """What a heap holds. `seq` breaks ties; `place` is the live heap item of the value, None outside a heap."""

    seq: int
    place: object


T = TypeVar("T", bound=Placed)


class KeyedHeap(Generic[T]):
    """Least key first, ties by `seq`. An item is live if and only if it is its value's `place`, so a value is in one
    heap at a time. All operations O(log n) amortised; stale items never outnumber live ones by more than 64."""

    __slots__ = ("_items", "_live")

    def __init__(self) -> None:
        self._items: list[tuple[float, int, T]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[T]:
        """The values, in no particular order."""
        return (item[2] for item in self._items if item[2].place is item)

    def items(self) -> Iterator[tuple[float, int, T]]:
        """(key, seq, value) of each, in no particular order."""
        return (item for item in self._items if item[2].place is item)

    def push(self, key: float, value: T) -> None:
        item = (key, value.seq, value)
        value.place = item
        self._live += 1
        heappush(self._items, item)

    def peek(self) -> tuple[float, int, T] | None:
        items = self._items
        while items:
            item = items[0]
            if item[2].place is item:
                return item
            heappop(items)
        return None

    def pop(self) -> tuple[float, int, T] | None:
        items = self._items
        while items:
            item = heappop(items)
            if item[2].place is item:
                item[2].place = None
                self._live -= 1
                return item
        return None

    def remove(self, value: T) -> None:
        """`value` must be in this heap."""
        value.place = None
        self._live -= 1
        self._compact()

    def rekey(self, key: float, value: T) -> None:
        """Give `value`, which must be in this heap, another key."""
        items = self._items
        old = value.place
        if isinstance(old, tuple) and old[0] == key:
            return
        item = (key, value.seq, value)
        at_top = items[0] is old
        value.place = item
        if at_top:
            heapreplace(items, item)
            return
        heappush(items, item)
        self._compact()

    def refill(self, values: Iterable[T], key: Callable[[T], float]) -> None:
        """Hold exactly `values`, each under its key; O(n)."""
        items = [(key(value), value.seq, value) for value in values]
        for item in items:
            item[2].place = item
        heapify(items)
        self._items = items
        self._live = len(items)

    def _compact(self) -> None:
        if len(self._items) > 2 * self._live + 64:
            self._items = [item for item in self._items if item[2].place is item]
            heapify(self._items)
