"""Weighted fair queueing by virtual finish time (Demers et al. 1989; self-clocked form, Golestani 1994)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.shares import TenantShare
from hmas.worker.agent.order.topologies.fair_share import FairShare


class Wfq(FairShare):
    """The tenant whose next request would finish first in virtual time: F = max(V, F_last) + service / weight.

    V is the finish tag last served. Predicted service orders and is charged; the end of a request corrects it.
    """

    name = TopologyName.WFQ
    __slots__ = ()

    def key(self, share: TenantShare) -> float:
        head: QueueEntry | None = share.queue.peek()
        return share.tag if head is None else share.tag + head.service / share.weight
