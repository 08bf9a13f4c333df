"""Least laxity first (Mok 1983; H-MAS App. C.2)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.topologies.base import KeyOrdered


class Llf(KeyOrdered):
    """Orders requests by laxity D_r - now - T_tot. As `now` is the same for all, the key D_r - T_tot gives the same
    order at any time."""

    name = TopologyName.LLF
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.slack_s
