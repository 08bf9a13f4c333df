"""Orders that share service among tenants by a virtual time: stride, completely fair, round robin, feedback queue."""

from dataclasses import dataclass

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.shares import TenantShare
from hmas.worker.agent.order.topologies.fair_share import FairShare, FairShareConfig

LEVEL_RANK = float(1 << 40)  # distance between levels of the feedback queue; ranks within one level stay below it


class Stride(FairShare):
    """Serves the tenant with the least pass value (Waldspurger and Weihl 1995).

    A dispatch advances the tenant's pass by its stride (1 / weight) times the request's predicted service, and the end
    of the request corrects it. A tenant that comes back from idle keeps its debt.
    """

    name = TopologyName("stride")
    __slots__ = ()


class ByQuanta(FairShare):
    """The base of those that serve a tenant for a quantum of `quantum_tokens` (of the hints) at a time."""

    __slots__ = ("_quantum",)

    def __init__(self, hints: Hints, config: FairShareConfig) -> None:
        super().__init__(config)
        self._quantum = float(max(1, hints.quantum_tokens))


class Cfs(ByQuanta):
    """Serves the tenant with the least vruntime = weighted service tokens / weight (Linux CFS; the virtual token
    counter of Sheng et al., OSDI 2024).

    Tokens are counted as they are really served: the prompt at dispatch, each output token once it is produced. The
    tenant served last stays in turn until it is a quantum ahead of the least (CFS's wake-up granularity), which keeps
    its prefixes in the engine's cache.
    """

    name = TopologyName("cfs")
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
        if least is None or current is None or current.rank is None:
            return least
        return current if current.tag <= least.tag + self._quantum / current.weight else least


class RoundRobin(ByQuanta):
    """Serves each tenant in turn until it has used up its quantum (`quantum_tokens` * weight); what it overdraws is
    taken from its next turns (surplus round robin, Floyd and Jacobson 1995; Shreedhar and Varghese 1996).

    A tenant's `tag` is the next round that it takes part in, `credit` the service tokens that it may still use in that
    round. A tenant in debt is put straight into the round in which its debt is paid, so that a decision costs O(log n)
    and not a walk of the ring.
    """

    name = TopologyName("rr")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class MlfqConfig(FairShareConfig):
    levels: int = 6
    boost_quanta: int = 64  # quanta served per known tenant between two boosts


class Mlfq(ByQuanta):
    """Serves tenants by level: those that have had little service come first (Corbato et al. 1962; rules as in
    Arpaci-Dusseau, Operating Systems, ch. 8).

    Levels apply to tenants, because a request is not preempted once dispatched. A tenant starts at the top (level 0)
    and sinks a level when it has received its allotment there, quantum * weight * 2^level service tokens, whether in
    one run or many (idling does not reset it). The highest level is served first, the tenants of one level in turn.
    After every `boost_quanta` quanta of service per tenant all return to the top, so that none starves. Service is
    counted as it is really received, not as predicted.
    """

    name = TopologyName("mlfq")
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


def make_stride(hints: Hints) -> Stride:
    return Stride(FairShareConfig())


def make_cfs(hints: Hints) -> Cfs:
    return Cfs(hints, FairShareConfig())


def make_rr(hints: Hints) -> RoundRobin:
    return RoundRobin(hints, FairShareConfig())


def make_mlfq(hints: Hints) -> Mlfq:
    return Mlfq(hints, MlfqConfig())
