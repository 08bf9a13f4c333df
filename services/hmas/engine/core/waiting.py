"""The waiting queues of the engine core, one class per order."""

from collections import OrderedDict
from heapq import heappop, heappush
from itertools import takewhile
from typing import Protocol

from hmas.engine.core.sequence import Sequence


class WaitingQueue(Protocol):
    """A queue of waiting sequences. `push` adds a new one, `push_back_in` one that was preempted, or one that has read
    its prompt's KV: it holds memory, so it goes before all others, who may wait for that memory."""

    def push(self, seq: Sequence) -> None: ...
    def push_back_in(self, seq: Sequence) -> None: ...
    def peek(self) -> Sequence | None: ...
    def pop(self) -> Sequence: ...
    def remove(self, seq: Sequence) -> None: ...
    def __len__(self) -> int: ...


def _holds_memory(seq: Sequence) -> bool:
    return seq.context > 0


class FcfsQueue:
    """A first-come, first-served queue; a preempted sequence goes to the head. All operations are O(1)."""

    def __init__(self) -> None:
        self._queue: OrderedDict[str, Sequence] = OrderedDict()

    def push(self, seq: Sequence) -> None:
        self._queue[seq.id] = seq

    def push_back_in(self, seq: Sequence) -> None:
        before = [] if seq.context else [other.id for other in takewhile(_holds_memory, self._queue.values())]
        self._queue[seq.id] = seq
        for name in (seq.id, *reversed(before)):
            self._queue.move_to_end(name, last=False)

    def peek(self) -> Sequence | None:
        return next(iter(self._queue.values()), None)

    def pop(self) -> Sequence:
        return self._queue.popitem(last=False)[1]

    def remove(self, seq: Sequence) -> None:
        del self._queue[seq.id]

    def __len__(self) -> int:
        return len(self._queue)


class PriorityQueue:
    """A queue ordered by (priority, arrival), lower first; a preempted sequence gets its old place. Those that hold
    memory stand before it.

    Operations are O(log n); removed sequences stay in the heap until they reach its top or are cleaned up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[bool, float, int, Sequence]] = []
        self._live: dict[str, Sequence] = {}

    def push(self, seq: Sequence) -> None:
        heappush(self._heap, (not _holds_memory(seq), seq.request.priority, seq.order, seq))
        self._live[seq.id] = seq

    push_back_in = push

    def peek(self) -> Sequence | None:
        while self._heap and self._live.get(self._heap[0][-1].id) is not self._heap[0][-1]:
            heappop(self._heap)
        return self._heap[0][-1] if self._heap else None

    def pop(self) -> Sequence:
        seq = self.peek()
        if seq is None:
            raise IndexError("pop from an empty queue")
        heappop(self._heap)
        del self._live[seq.id]
        return seq

    def remove(self, seq: Sequence) -> None:
        del self._live[seq.id]
        if len(self._heap) > 2 * len(self._live) + 64:  # removed sequences must not pile up
            self._heap = sorted(entry for entry in self._heap if self._live.get(entry[-1].id) is entry[-1])

    def __len__(self) -> int:
        return len(self._live)
