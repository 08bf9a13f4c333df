"""One tenant's queue and account in a fair-share topology.

Fairness has two levels, so that a tenant gains nothing by opening flows: tenants share by weight under the topology's
own rule, and the flows of one tenant share equally.
"""

from collections.abc import Iterator

from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap, Rank


class FlowQueue:
    """One tenant's queued requests, ordered so that its flows share equally.

    The rule is self-clocked fair queueing (Golestani, INFOCOM 1994) on predicted service; a single flow is served in
    order of arrival. The tags of idle flows are dropped once there are more than twice as many tags as queued requests,
    plus 64.
    """

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
        """Fills an empty queue with `entries`, as if each were pushed in turn."""
        self._heap.refill(entries, self._tag)

    def peek(self) -> QueueEntry | None:
        return self._heap.peek()

    def pop(self) -> QueueEntry:
        """Takes out the next request and returns it. The queue must not be empty."""
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
            tag = 0.0 if entry.rank is None else entry.rank[0]
            finish[flow] = max(tag, finish.get(flow, 0.0))
        self._finish = finish


class TenantShare:
    """A tenant in a fair-share topology, with its queue and its account.

    `tag` is its virtual time, which is a finish time, pass, vruntime or round, depending on the topology. `credit` and
    `level` are for topologies that have to know more of a tenant.
    """

    __slots__ = ("credit", "level", "queue", "rank", "seq", "tag", "tenant", "weight")

    def __init__(self, tenant: str, weight: float) -> None:
        self.tenant = tenant
        self.weight = weight
        self.seq = 0  # number of its last change from idle to backlogged; breaks ties
        self.rank: Rank | None = None
        self.queue = FlowQueue()
        self.tag = 0.0
        self.credit = 0.0
        self.level = 0
