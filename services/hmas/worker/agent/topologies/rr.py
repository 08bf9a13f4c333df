"""Round robin over tenants with a token quantum: deficit round robin that may overdraw once (surplus round robin,
Floyd and Jacobson 1995; Shreedhar and Varghese 1996)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.shares import TenantShare
from hmas.worker.agent.topologies.fair_share import FairShare


class RoundRobin(FairShare):
    """Each tenant in turn is served until it has used up its quantum (`quantum_tokens` * weight); what it overdraws
    is taken from its next turns.

    `tag` is the next round the tenant takes part in, `credit` what it may still use in it. A tenant in debt is put
    straight into the round in which it is out of it, so that a decision costs O(log n) and not a walk of the ring.
    """

    name = TopologyName.RR
    __slots__ = ()

    def join(self, share: TenantShare) -> None:
        if share.tag < self._virtual or not share.credit:
            share.credit = self._quantum * share.weight
        share.tag = max(share.tag, self._virtual)

    def charge(self, share: TenantShare, tokens: float) -> None:
        quantum = self._quantum * share.weight
        share.credit = min(share.credit - tokens, quantum)
        if share.credit <= 0.0:
            rounds = int(-share.credit // quantum) + 1
            share.tag += rounds
            share.credit += rounds * quantum

    def settled(self, share: TenantShare) -> bool:
        return share.tag < self._virtual  # in its round it must not return with a fresh quantum
