"""Round robin over tenants with a token quantum: deficit round robin that may overdraw once (surplus round robin,
Floyd and Jacobson 1995; Shreedhar and Varghese 1996)."""

from hmas.contracts.control import TopologyName
from hmas.worker.agent.shares import TenantShare
from hmas.worker.agent.topologies.fair_share import FairShare


class RoundRobin(FairShare):
    """Serves each tenant in turn until it has used up its quantum (`quantum_tokens` * weight); what it overdraws is
    taken from its next turns.

    A tenant's `tag` is the next round that it takes part in, `credit` the service tokens that it may still use in that
    round. A tenant in debt is put straight into the round in which its debt is paid, so that a decision costs O(log n)
    and not a walk of the ring.
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
        return share.tag < self._virtual  # within the present round it must not return with a fresh quantum
