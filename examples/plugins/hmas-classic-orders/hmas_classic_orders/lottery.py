"""Lottery scheduling (Waldspurger and Weihl 1994) with compensation tickets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.shares import TenantShare

TICKETS = 1 << 32  # tickets of a tenant of weight 1 whose next request needs one service token


@dataclass(frozen=True, slots=True, kw_only=True)
class LotteryConfig:
    seed: int = 1  # each order draws the same numbers, so that a recording of the worker can be replayed
    bias_memory: float = 15.0 / 16.0  # factor by which past service fades from the prediction bias per ended request


class TicketTree:
    """The number of tickets in each slot; a change and a draw take O(log n) (Fenwick 1994). Integers do not drift."""

    __slots__ = ("_sums", "_tickets", "total")

    def __init__(self) -> None:
        self._tickets: list[int] = [0]
        self._sums: list[int] = [0, 0]  # 1-based; length a power of two plus one
        self.total = 0

    def slots(self) -> int:
        return len(self._tickets)

    def grow(self) -> None:
        """Doubles the number of slots; the new ones hold no tickets."""
        # Every new inner sum covers new, empty slots only, except the last, which covers all.
        self._sums.extend([0] * len(self._tickets))
        self._sums[-1] = self.total
        self._tickets.extend([0] * len(self._tickets))

    def put(self, slot: int, tickets: int) -> None:
        change = tickets - self._tickets[slot]
        if not change:
            return
        self._tickets[slot] = tickets
        self.total += change
        sums, node, size = self._sums, slot + 1, len(self._sums)
        while node < size:
            sums[node] += change
            node += node & -node

    def find(self, ticket: int) -> int:
        """Returns the slot that holds `ticket`, a number in [0, total), if tickets are numbered slot by slot."""
        sums, position, step = self._sums, 0, len(self._tickets)
        while step:
            middle = position + step
            if middle < len(sums) and sums[middle] <= ticket:
                position = middle
                ticket -= sums[middle]
            step >>= 1
        return position


class Seat(TenantShare):
    """A tenant in the draw; its tickets are in the slot of the tree that has the number `slot`."""

    __slots__ = ("slot",)

    def __init__(self, tenant: str, weight: float, slot: int) -> None:
        super().__init__(tenant, weight)
        self.slot = slot
        self.credit = self.tag = 1.0  # decayed sums of real and of predicted service


class Lottery:
    """Draws a ticket to choose the tenant to serve; within a tenant, flows take turns.

    A tenant's tickets are proportional to its weight / the predicted service of its next request. The division is a
    compensation ticket: a winner is served for a whole request, and so expected service, not the number of wins, is
    proportional to weight. Predictions are corrected by the tenant's running ratio of real to predicted service while
    it is backlogged. An idle tenant holds no tickets and no state.
    """

    name = TopologyName("lottery")
    accounts_service = True
    paced = False
    sets_aside = False
    uses_tags = True
    __slots__ = ("_bias_memory", "_by_slot", "_free", "_length", "_rng", "_shares", "_tree", "_winner")

    def __init__(self, config: LotteryConfig) -> None:
        self._rng = Random(config.seed)
        self._bias_memory = config.bias_memory
        self._tree = TicketTree()
        self._shares: dict[str, Seat] = {}
        self._by_slot: list[Seat | None] = [None]
        self._free = [0]
        self._winner: Seat | None = None
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[QueueEntry]:
        return (entry for share in self._shares.values() for entry in share.queue)

    def observe(self, view: ServiceView) -> None:
        pass

    def push(self, entry: QueueEntry) -> None:
        request = entry.request
        share = self._shares.get(request.tenant)
        if share is None:
            share = self._seat(request.tenant, request.weight)
        share.weight = request.weight
        share.queue.push(entry)
        self._length += 1
        if share.queue.peek() is entry:
            self._issue(share)

    def peek(self) -> QueueEntry | None:
        if self._winner is None and self._length:
            self._winner = self._by_slot[self._tree.find(self._rng.randrange(self._tree.total))]
        return None if self._winner is None else self._winner.queue.peek()

    def pop(self) -> QueueEntry | None:
        if self.peek() is None:
            return None
        share = self._winner
        assert share is not None
        entry = share.queue.pop()
        self._winner = None
        self._length -= 1
        entry.urgency = entry.request.arrival_s  # a draw has no rank: those dispatched are equals
        entry.charged = entry.service
        self._issue(share)
        return entry

    def remove(self, entry: QueueEntry) -> None:
        share = self._shares[entry.request.tenant]
        share.queue.remove(entry)
        self._length -= 1
        self._issue(share)

    def reannotate(self, entry: QueueEntry) -> None:
        self._issue(self._shares[entry.request.tenant])

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        backlogs: dict[str, list[QueueEntry]] = {}
        for entry in entries:
            backlogs.setdefault(entry.request.tenant, []).append(entry)
        for tenant, backlog in backlogs.items():
            share = self._seat(tenant, backlog[0].request.weight)
            share.queue.refill(backlog)
            self._length += len(backlog)
            self._issue(share)

    def late(self) -> Sequence[QueueEntry]:
        return ()

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        share = self._shares.get(entry.request.tenant)
        if final and share is not None and entry.charged > 0.0 and tokens > 0.0:
            share.credit = self._bias_memory * share.credit + tokens
            share.tag = self._bias_memory * share.tag + entry.charged
            self._issue(share)

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return "its tenant's ticket was drawn"

    def _seat(self, tenant: str, weight: float) -> Seat:
        if not self._free:
            seats = self._tree.slots()
            self._tree.grow()
            self._by_slot.extend([None] * seats)
            self._free.extend(range(2 * seats - 1, seats - 1, -1))
        share = self._shares[tenant] = Seat(tenant, weight, self._free.pop())
        self._by_slot[share.slot] = share
        return share

    def _issue(self, share: Seat) -> None:
        """Sets the tenant's tickets to weight / expected service of its next waiting request. If none waits, the
        tenant leaves the draw and its slot in the ticket tree becomes free."""
        head = share.queue.peek()
        if head is not None:
            worth = TICKETS * share.weight / max(1.0, head.service * share.credit / share.tag)
            self._tree.put(share.slot, max(1, int(worth)))
            return
        self._tree.put(share.slot, 0)
        self._by_slot[share.slot] = None
        self._free.append(share.slot)
        del self._shares[share.tenant]
        if self._winner is share:
            self._winner = None


def make_lottery(hints: Hints) -> Lottery:
    return Lottery(LotteryConfig())
