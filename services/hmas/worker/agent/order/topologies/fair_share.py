"""The base of the topologies that share service among tenants by a virtual time, such as WFQ; those of packages
(`examples/plugins/hmas-classic-orders`) build on it too."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hmas.contracts.control import TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap
from hmas.worker.agent.order.shares import TenantShare


@dataclass(frozen=True, slots=True, kw_only=True)
class FairShareConfig:
    max_idle: int = 4096  # idle tenants whose debt is remembered


class FairShare:
    """Serves the backlogged tenant with the least `key`, and within it the flows in turn (`FlowQueue`).

    A tenant is charged at `pop` (by `upfront`) and the charge is corrected by `on_served`, so that shares follow real
    service, not predictions. A tenant that comes back from idle starts no earlier than virtual time, so that idling
    earns no credit. One that leaves in debt is remembered until virtual time has caught up with it; at most `max_idle`
    of them are. Subclasses define what is charged when, and how a charge changes the tenant's share.
    """

    name: TopologyName
    accounts_service = True
    paced = False
    sets_aside = False
    uses_tags = True
    __slots__ = ("_idle", "_length", "_max_idle", "_ready", "_shares", "_turns", "_virtual")

    def __init__(self, config: FairShareConfig) -> None:
        self._max_idle = config.max_idle
        self._ready: KeyedHeap[TenantShare] = KeyedHeap()
        self._shares: dict[str, TenantShare] = {}  # every tenant known, backlogged or idle
        self._idle: dict[str, TenantShare] = {}  # longest idle first
        self._virtual = 0.0
        self._length = 0
        self._turns = 0

    # what subclasses change

    def upfront(self, entry: QueueEntry) -> float:
        """Returns the service tokens that are charged when `entry` is popped: by default its predicted service."""
        return entry.service

    def key(self, share: TenantShare) -> float:
        """Returns the rank of a backlogged tenant; the least is served first."""
        return share.tag

    def charge(self, share: TenantShare, tokens: float) -> None:
        """Charges a tenant for `tokens` of service; a negative number is a refund."""
        share.tag += tokens / share.weight

    def join(self, share: TenantShare) -> None:
        """Lets a tenant that was idle and now has requests take part again."""
        share.tag = max(share.tag, self._virtual)

    def settled(self, share: TenantShare) -> bool:
        """Returns whether an idle tenant may be forgotten because a new one would be treated alike."""
        return share.tag <= self._virtual

    # the topology

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for share in self._ready for entry in share.queue)

    def observe(self, view: ServiceView) -> None:
        pass

    def push(self, entry: QueueEntry) -> None:
        share = self._share(entry)
        queue = share.queue
        queue.push(entry)
        self._length += 1
        if share.rank is None:
            self._enter(share)
        elif queue.peek() is entry:
            self._ready.rekey(self.key(share), share)

    def peek(self) -> QueueEntry | None:
        share = self._pick()
        return None if share is None else share.queue.peek()

    def pop(self) -> QueueEntry | None:
        share = self._pick()
        if share is None:
            return None
        rank = self.key(share)
        self._virtual = max(self._virtual, rank)
        entry = share.queue.pop()
        self._length -= 1
        entry.urgency = rank
        entry.charged = self.upfront(entry)
        self.charge(share, entry.charged)
        self._refresh(share)
        return entry

    def remove(self, entry: QueueEntry) -> None:
        share = self._shares[entry.request.tenant]
        share.queue.remove(entry)
        self._length -= 1
        self._refresh(share)

    def reannotate(self, entry: QueueEntry) -> None:
        share = self._shares[entry.request.tenant]
        if share.queue.peek() is entry:
            self._ready.rekey(self.key(share), share)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        backlogs: dict[str, list[QueueEntry]] = {}
        for entry in entries:
            backlogs.setdefault(entry.request.tenant, []).append(entry)
        for backlog in backlogs.values():
            share = self._share(backlog[0])
            share.queue.refill(backlog)
            self._length += len(backlog)
            self._enter(share)

    def late(self) -> Sequence[QueueEntry]:
        return ()

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        owed = tokens - entry.charged
        if owed <= 0.0 and not (final and owed < 0.0):
            return  # predicted service is refunded only at the end
        entry.charged = tokens
        share = self._shares.get(entry.request.tenant)
        if share is not None:
            self.charge(share, owed)
            if share.rank is not None:
                self._ready.rekey(self.key(share), share)
        elif owed > 0.0:
            share = self._share(entry)
            self.join(share)
            self.charge(share, owed)
            self._rest(share)

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"its tenant's turn: virtual time {entry.urgency:.4g}"

    def _pick(self) -> TenantShare | None:
        return self._ready.peek()

    def _share(self, entry: QueueEntry) -> TenantShare:
        request = entry.request
        share = self._shares.get(request.tenant)
        if share is None:
            share = self._shares[request.tenant] = TenantShare(request.tenant, request.weight)
        share.weight = request.weight
        return share

    def _enter(self, share: TenantShare) -> None:
        self._idle.pop(share.tenant, None)
        self._turns += 1
        share.seq = self._turns
        self.join(share)
        self._ready.push(self.key(share), share)

    def _refresh(self, share: TenantShare) -> None:
        if share.queue:
            self._ready.rekey(self.key(share), share)
        else:
            self._ready.remove(share)
            self._rest(share)

    def _rest(self, share: TenantShare) -> None:
        """Remembers a tenant that became idle only if it is in debt."""
        if self.settled(share):
            del self._shares[share.tenant]
            return
        self._idle[share.tenant] = share
        longest = next(iter(self._idle))
        if len(self._idle) > self._max_idle or self.settled(self._idle[longest]):
            del self._idle[longest], self._shares[longest]
