"""Multi-level feedback queue (Corbato et al. 1962; rules as in Arpaci-Dusseau, Operating Systems, ch. 8)."""

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.shares import TenantShare
from hmas.worker.agent.topologies.fair_share import FairShare

LEVELS = 6
LEVEL_RANK = float(1 << 40)  # ranks within one level stay below
BOOST_QUANTA = 64  # quanta served per known tenant between two boosts


class Mlfq(FairShare):
    """Levels apply to tenants, since a request is not preempted once dispatched.

    A tenant starts at the top and sinks a level when it has received its allotment there, quantum * weight * 2^level
    service tokens, whether in one run or many (idling does not reset it). The highest level is served first, tenants
    of one level in turn. After every `BOOST_QUANTA` quanta of service per tenant all return to the top, so none
    starves. Service is counted as it is really given.
    """

    name = TopologyName.MLFQ
    __slots__ = ("_since_boost",)

    def __init__(self, hints: Hints) -> None:
        super().__init__(hints)
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
        if self._since_boost >= BOOST_QUANTA * self._quantum * len(self._shares):
            self._boost()
        return entry

    def charge(self, share: TenantShare, tokens: float) -> None:
        share.credit += tokens
        self._since_boost += tokens
        while share.level < LEVELS - 1:
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
