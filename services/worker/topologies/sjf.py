"""Shortest job first, the topology the control loop starts with (H-MAS Algorithm 1)."""

from hmas.contracts.control import TopologyName

from services.worker.entry import Entry
from services.worker.topologies.base import KeyOrdered


class Sjf(KeyOrdered):
    """By the predicted service time T_tot."""

    name = TopologyName.SJF
    __slots__ = ()

    def key(self, entry: Entry) -> float:
        return entry.total_s
