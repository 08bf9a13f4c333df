"""Completely fair scheduling of tokens (Linux CFS; the virtual token counter of Sheng et al., OSDI 2024)."""

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.shares import TenantShare
from hmas.worker.agent.topologies.fair_share import FairShare, FairShareConfig


class Cfs(FairShare):
    """Serves the tenant with the least vruntime = weighted service tokens / weight.

    Tokens are counted as they are really served: the prompt at dispatch, each output token once it is produced. The
    tenant served last stays in turn until it is a quantum ahead of the least (CFS's wake-up granularity), which keeps
    its prefixes in the engine's cache.
    """

    name = TopologyName.CFS
    __slots__ = ("_current",)

    def __init__(self, hints: Hints, config: FairShareConfig) -> None:
        super().__init__(hints, config)
        self._current: TenantShare | None = None

    def upfront(self, entry: QueueEntry) -> float:
        return float(entry.request.prompt_tokens)

    def pop(self) -> QueueEntry | None:
        self._current = self._pick()
        return super().pop()

    def _pick(self) -> TenantShare | None:
        least = super()._pick()
        current = self._current
        if least is None or current is None or current.place is None:
            return least
        return current if current.tag <= least.tag + self._quantum / current.weight else least
