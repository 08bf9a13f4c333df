"""What each tenant has had and is owed: the common half of the fair-share topologies.

Fairness has two levels, so that a tenant gains nothing by opening flows: tenants share by weight under the topology's
own rule, and within a tenant its flows share equally.
"""

from collections.abc import Iterator

from services.worker.entry import Entry
from services.worker.keyed_heap import KeyedHeap


class FlowQueue:
    """One tenant's queued requests, fair among its flows by self-clocked fair queueing (Golestani, INFOCOM 1994) on
    predicted service; in arrival order where there is one flow. State: at most one tag per queued request, + 64."""

    __slots__ = ("_finish", "_heap", "_virtual")

    def __init__(self) -> None:
        self._heap: KeyedHeap[Entry] = KeyedHeap()
        self._finish: dict[str, float] = {}  # virtual finish of each flow's last request
        self._virtual = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._heap)

    def push(self, entry: Entry) -> None:
        if entry.tried:  # it lost its engine and has had its turn: back to the front
            self._heap.push(self._virtual, entry)
            return
        flow = entry.request.flow
        finish = max(self._virtual, self._finish.get(flow, 0.0)) + entry.service
        self._finish[flow] = finish
        self._heap.push(finish, entry)
        if len(self._finish) > 2 * len(self._heap) + 64:
            self._forget_idle()

    def peek(self) -> Entry | None:
        item = self._heap.peek()
        return None if item is None else item[2]

    def pop(self) -> Entry:
        """Must not be empty."""
        item = self._heap.pop()
        assert item is not None
        self._virtual = max(self._virtual, item[0])
        return item[2]

    def remove(self, entry: Entry) -> None:
        self._heap.remove(entry)

    def _forget_idle(self) -> None:
        finish: dict[str, float] = {}
        for key, _, entry in self._heap.items():
            flow = entry.request.flow
            finish[flow] = max(key, finish.get(flow, 0.0))
        self._finish = finish


class Share:
    """A tenant in a fair-share topology. `tag`: its virtual time (finish, pass, vruntime or round); `credit` and
    `level`: for the topologies that keep them."""

    __slots__ = ("credit", "level", "place", "queue", "seq", "slot", "tag", "tenant", "weight")

    def __init__(self, tenant: str, weight: float) -> None:
        self.tenant = tenant
        self.weight = weight
        self.seq = 0  # of its last turn from idle to backlogged
        self.place: object = None
        self.queue = FlowQueue()
        self.tag = 0.0
        self.credit = 0.0
        self.level = 0
        self.slot = -1
