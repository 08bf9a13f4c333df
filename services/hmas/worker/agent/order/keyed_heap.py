"""A binary heap of keyed values with removal and change of key, by lazy deletion over `heapq`."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, Protocol, TypeVar

Rank = tuple[float, int]  # (key, seq)


class Ranked(Protocol):
    """A value that a `KeyedHeap` can hold.

    `seq` is unique and breaks ties between equal keys; `rank` is the value's current heap item, None outside a heap.
    """

    seq: int
    rank: Rank | None


T = TypeVar("T", bound=Ranked)


class KeyedHeap(Generic[T]):
    """A priority queue that gives the value with the least key first, ties by `seq`.

    A heap item is live if and only if it is its value's `rank`, so a value can be in one heap at a time. All
    operations take O(log n) amortised; stale items never outnumber live ones by more than 64.

    Items hold numbers only, so that the garbage collector stops tracking them: tuples that held the values would make
    it walk the whole queue again and again while one is rebuilt.
    """

    __slots__ = ("_items", "_values")

    def __init__(self) -> None:
        self._items: list[Rank] = []
        self._values: dict[int, T] = {}  # by seq

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[T]:
        """The values, in no particular order."""
        return iter(self._values.values())

    def __contains__(self, value: T) -> bool:
        return value.seq in self._values

    def push(self, key: float, value: T) -> None:
        seq = value.seq
        item = (key, seq)
        value.rank = item
        self._values[seq] = value
        heappush(self._items, item)

    def peek(self) -> T | None:
        items, values = self._items, self._values
        while items:
            item = items[0]
            value = values.get(item[1])
            if value is not None and value.rank is item:
                return value
            heappop(items)
        return None

    def pop(self) -> tuple[float, T] | None:
        """Takes out the value with the least key and returns (key, value); None if the heap is empty."""
        items, values = self._items, self._values
        while items:
            item = heappop(items)
            value = values.get(item[1])
            if value is not None and value.rank is item:
                value.rank = None
                del values[item[1]]
                return item[0], value
        return None

    def remove(self, value: T) -> None:
        """Takes out `value`, which must be in this heap."""
        value.rank = None
        del self._values[value.seq]
        self._compact()

    def rekey(self, key: float, value: T) -> None:
        """Gives `value`, which must be in this heap, another key."""
        items = self._items
        old = value.rank
        assert old is not None
        if old[0] == key:
            return
        item = value.rank = (key, value.seq)
        if items[0] is old:
            heapreplace(items, item)
            return
        heappush(items, item)
        self._compact()

    def refill(self, values: Iterable[T], key: Callable[[T], float]) -> None:
        """Replaces the content of the heap by `values`, each under the key that `key` computes; O(n)."""
        self._values = {value.seq: value for value in values}
        items: list[Rank] = []
        for seq, value in self._values.items():
            item = value.rank = (key(value), seq)
            items.append(item)
        heapify(items)
        self._items = items

    def _compact(self) -> None:
        if len(self._items) > 2 * len(self._values) + 64:
            self._items = [value.rank for value in self._values.values() if value.rank is not None]
            heapify(self._items)
