"""Earliest deadline first (Liu and Layland 1973; H-MAS §3.5)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered


class Edf(KeyOrdered):
    """Orders requests by the absolute deadline D_r = a_r + SLO_ttft + SLO_tpot * l_pred (or a_r + a stated TTLT)."""

    name = TopologyName.EDF
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.deadline_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"whole answer due in {entry.deadline_s - now_s:.1f} s"
