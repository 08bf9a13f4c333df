"""Strict priority with linear ageing (H-MAS App. C.2; ageing as in Kleinrock's delay-dependent priorities, 1964)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.topologies.base import KeyOrdered

AGEING_S = 30.0  # waiting that is worth one priority level


class Priority(KeyOrdered):
    """Lower `priority` first, each `AGEING_S` seconds of waiting worth a level, so that none waits for ever.

    Effective priority = priority - (now - a_r) / AGEING_S; `now` is common to all, which leaves a constant key.
    """

    name = TopologyName.PRIORITY
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.request.priority * AGEING_S + entry.request.arrival_s
