"""First come, first served: the availability baseline and the order under bypass (H-MAS App. C.2)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered


class Fcfs(KeyOrdered):
    """Orders requests by arrival at the gateway, so that one that was handed back and routed again keeps its turn."""

    name = TopologyName.FCFS
    uses_tags = False
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.request.arrival_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"arrived {now_s - entry.request.arrival_s:.1f} s ago"
