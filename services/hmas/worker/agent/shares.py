"""What each tenant has had and is owed: the common half of the fair-share topologies.

Fairness has two levels, so that a tenant gains nothing by opening flows: tenants share by weight under the topology's
own rule, and within a tenant its flows share equally.
"""

from collections.abc import Iterator

from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.keyed_heap import KeyedHeap, Place


class FlowQueue:
    """One tenant's queued requests, fair among its flows by self-clocked fair queueing (Golestani, INFOCOM 1994) on
    predicted service; in arrival order where there is one flow. State: at most one tag per queued request, + 64."""

    __slots__ = ("_finish", "_heap", "_virtual")

    def __init__(self) -> None:
        self._heap: KeyedHeap[QueueEntry] = KeyedHeap()
        self._finish: dict[str, float] = {}  # virtual finish of each flow's last request
        self._virtual = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._heap)

    def push(self, entry: QueueEntry) -> None:
        self._heap.push(self._tag(entry), entry)
        if len(self._finish) > 2 * len(self._heap) + 64:
            self._forget_idle()

    def refill(self, entries: list[QueueEntry]) -> None:
        """Fill an empty queue, as by pushing each in turn."""
        self._heap.refill(entries, self._tag)

    def peek(self) -> QueueEntry | None:
        return self._heap.peek()

    def pop(self) -> QueueEntry:
        """Must not be empty."""
        item = self._heap.pop()
        assert item is not None
        self._virtual = max(self._virtual, item[0])
        return item[1]

    def remove(self, entry: QueueEntry) -> None:
        self._heap.remove(entry)

    def _tag(self, entry: QueueEntry) -> float:
        if entry.tried:  # it lost its engine and has had its turn: back to the front
            return self._virtual
        flow = entry.request.flow
        finish = self._finish.get(flow, 0.0)
        if finish < self._virtual:
            finish = self._virtual
        finish = self._finish[flow] = finish + entry.service
        return finish

    def _forget_idle(self) -> None:
        finish: dict[str, float] = {}
        for entry in self._heap:
            flow = entry.request.flow
            tag = 0.0 if entry.place is None else entry.place[0]
            finish[flow] = max(tag, finish.get(flow, 0.0))
        self._finish = finish


class TenantShare:
    """A tenant in a fair-share topology. `tag`: its virtual time (finish, pass, vruntime or round); `credit` and
    `level`: for the topologies that keep them."""

    __slots__ = ("credit", "level", "place", "queue", "seq", "slot", "tag", "tenant", "weight")

    def __init__(self, tenant: str, weight: float) -> None:
        self.tenant = tenant
        self.weight = weight
        self.seq = 0  # of its last turn from idle to backlogged
        self.place: Place | None = None
        self.queue = FlowQueue()
        self.tag = 0.0
        self.credit = 0.0
        self.level = 0
        self.slot = -1
