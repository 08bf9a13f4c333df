"""Strict priority with linear ageing (H-MAS App. C.2; ageing as in Kleinrock's delay-dependent priorities, 1964)."""

from dataclasses import dataclass

from hmas.contracts.control import TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.topologies.base import KeyOrdered


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityConfig:
    ageing_s: float = 30.0  # seconds of waiting that are worth one priority level


class Priority(KeyOrdered):
    """Serves the lowest `priority` number first; each `ageing_s` seconds of waiting count as one level, so that no
    request waits for ever.

    Effective priority = priority - (now - a_r) / ageing_s; as `now` is the same for all, a constant key is left.
    """

    name = TopologyName.PRIORITY
    __slots__ = ("_ageing_s",)

    def __init__(self, config: PriorityConfig) -> None:
        super().__init__()
        self._ageing_s = config.ageing_s

    def key(self, entry: QueueEntry) -> float:
        return entry.request.priority * self._ageing_s + entry.request.arrival_s
