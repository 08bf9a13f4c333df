"""Orders by one number per request: least laxity, shortest remaining time, and priority with ageing."""

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies.base import KeyOrdered

AGEING_S = 30.0  # seconds of waiting that are worth one level of priority


class Llf(KeyOrdered):
    """Orders requests by laxity D_r - now - T_tot (Mok 1983). As `now` is the same for all, the key D_r - T_tot gives
    the same order at any time."""

    name = TopologyName("llf")
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.slack_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"laxity {entry.slack_s - now_s:.1f} s"


class Srtf(KeyOrdered):
    """Orders requests by the predicted service time that is left (Schrage 1968).

    A request is not preempted once dispatched, and returns to the queue only if it has produced nothing, so in this
    queue the order is that of SJF.
    """

    name = TopologyName("srtf")
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.remaining_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"needs {entry.remaining_s:.1f} s"


class Priority(KeyOrdered):
    """Serves the lowest `priority` number first; each `AGEING_S` seconds of waiting count as one level, so that no
    request waits for ever (Kleinrock's delay-dependent priorities, 1964).

    Effective priority = priority - (now - a_r) / AGEING_S; as `now` is the same for all, a constant key is left.
    """

    name = TopologyName("priority")
    uses_tags = False
    __slots__ = ()

    def key(self, entry: QueueEntry) -> float:
        return entry.request.priority * AGEING_S + entry.request.arrival_s

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"priority {entry.request.priority}, arrived {now_s - entry.request.arrival_s:.1f} s ago"


def make_llf(hints: Hints) -> Llf:
    return Llf()


def make_srtf(hints: Hints) -> Srtf:
    return Srtf()


def make_priority(hints: Hints) -> Priority:
    return Priority()
