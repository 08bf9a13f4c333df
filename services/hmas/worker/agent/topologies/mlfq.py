"""Multi-level feedback queue (Corbato et al. 1962; rules as in Arpaci-Dusseau, Operating Systems, ch. 8)."""

from dataclasses import dataclass

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.shares import TenantShare
from hmas.worker.agent.topologies.fair_share import FairShare, FairShareConfig

LEVEL_RANK = float(1 << 40)  # distance between levels; ranks within one level stay below it


@dataclass(frozen=True, slots=True, kw_only=True)
class MlfqConfig(FairShareConfig):
    levels: int = 6
    boost_quanta: int = 64  # quanta served per known tenant between two boosts


class Mlfq(FairShare):
    """Serves tenants by level: those that have had little service come first.

    Levels apply to tenants, because a request is not preempted once dispatched. A tenant starts at the top (level 0)
    and sinks a level when it has received its allotment there, quantum * weight * 2^level service tokens, whether in
    one run or many (idling does not reset it). The highest level is served first, the tenants of one level in turn.
    After every `boost_quanta` quanta of service per tenant all return to the top, so that none starves. Service is
    counted as it is really received, not as predicted.
    """

    name = TopologyName.MLFQ
    __slots__ = ("_boost_quanta", "_levels", "_since_boost")

    def __init__(self, hints: Hints, config: MlfqConfig) -> None:
        super().__init__(hints, config)
        self._levels = config.levels
        self._boost_quanta = config.boost_quanta
        self._since_boost = 0.0

    def upfront(self, entry: QueueEntry) -> float:
        return float(entry.request.prompt_tokens)

    def key(self, share: TenantShare) -> float:
        return share.level * LEVEL_RANK + share.tag

    def join(self, share: TenantShare) -> None:
        share.tag = float(self._turns)

    def settled(self, share: TenantShare) -> bool:
        return share.level == 0 and share.credit <= 0.0

    def pop(self) -> QueueEntry | None:
        share = self._pick()
        if share is not None:
            self._turns += 1
            share.tag = float(self._turns)  # behind the others of its level
        entry = super().pop()
        if self._since_boost >= self._boost_quanta * self._quantum * len(self._shares):
            self._boost()
        return entry

    def charge(self, share: TenantShare, tokens: float) -> None:
        share.credit += tokens
        self._since_boost += tokens
        while share.level < self._levels - 1:
            allotment = self._quantum * share.weight * (1 << share.level)
            if share.credit < allotment:
                break
            share.credit -= allotment
            share.level += 1

    def _boost(self) -> None:
        self._since_boost = 0.0
        for share in self._shares.values():
            share.level = 0
            share.credit = 0.0
        for tenant in self._idle:
            del self._shares[tenant]
        self._idle.clear()
        self._ready.refill(list(self._ready), self.key)
