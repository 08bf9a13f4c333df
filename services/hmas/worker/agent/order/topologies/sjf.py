"""Shortest job first, the topology the control loop starts with (H-MAS Algorithm 1)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered


class Sjf(KeyOrdered):
    """Orders requests by the predicted service time T_tot, the shortest first."""

    name = TopologyName.SJF
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.total_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"needs {entry.remaining_s:.1f} s"
