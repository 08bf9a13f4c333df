"""Shortest remaining time first (Schrage 1968; H-MAS App. C.2)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.topologies.base import KeyOrdered


class Srtf(KeyOrdered):
    """Orders requests by the predicted service time that is left.

    A request is not preempted once dispatched, and returns to the queue only if it has produced nothing, so in this
    queue the order is that of SJF.
    """

    name = TopologyName.SRTF
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.remaining_s
