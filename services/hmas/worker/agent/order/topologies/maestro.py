"""Maestro's order of jobs: shortest remaining workflow time first (Maestro Eq. 7)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered

AGEING = 0.01  # seconds of remaining time that a second of waiting makes up for; the paper states none


class Maestro(KeyOrdered):
    """Orders requests by T_rem = T_exec + T_future: the predicted time of the stage and the forecast of what its job
    needs after it (Eq. 8). A request without a job is a job of one stage.

    All that wait age alike, so that the instants at which they came keep the order between them. Jobs are preempted at
    the ends of their stages alone, because each stage queues anew.
    """

    name = TopologyName.MAESTRO
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.remaining_s + entry.future_s + AGEING * entry.request.arrival_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"its job needs {entry.remaining_s + entry.future_s:.1f} s"
