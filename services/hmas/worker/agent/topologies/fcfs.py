"""First come, first served: the availability baseline and the order under bypass (H-MAS App. C.2)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import Entry
from hmas.worker.agent.topologies.base import KeyOrdered


class Fcfs(KeyOrdered):
    """By arrival at the gateway, so that a request routed a second time keeps its turn."""

    name = TopologyName.FCFS
    __slots__ = ()

    def key(self, entry: Entry) -> float:
        return entry.request.arrival_s
