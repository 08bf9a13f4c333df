"""The request queue: every request that the worker holds, and the lanes in which those that wait are ordered."""

from collections.abc import Iterator, Mapping, Sequence

from hmas.contracts.control import SAFE_TOPOLOGY, Hints, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Annotation
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import EntryState, QueueEntry
from hmas.worker.agent.order.pace_lanes import PaceLanes
from hmas.worker.agent.order.queue_bound import QueueBound
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology, Topology


class RequestQueue:
    """All requests of the worker by id, parked, queued and running. The queued ones wait in lanes, each ordered by the
    active topology for itself: one lane (number 0) for all, or one for each pace class that is served apart.

    `max_queued` and `max_queued_tokens` bound what waits (`QueueBound`). `queued_s` is the sum of T_tot over the
    requests that wait. `topologies` makes the orders, by name.
    """

    def __init__(
        self, max_queued: int, max_queued_tokens: int, topologies: Mapping[str, MakeTopology] = TOPOLOGIES
    ) -> None:
        self.topologies = topologies
        self.topology: TopologyName = SAFE_TOPOLOGY
        self.hints = Hints()
        self.generation = 0  # number of the present order; grows with every switch of topology or hints
        self.switches = 0
        self.grants = 0
        self.waiting = 0  # how many are parked or queued
        self.parked = 0
        self.queued_tokens = 0
        self.queued_s = 0.0
        self.unwilling: dict[str, QueueEntry] = {}  # queued ones whose tenants prefer a refusal to a late answer
        self._bound = QueueBound(max_queued, max_queued_tokens)
        self.kinds: tuple[EngineKind, ...] = ()  # of the engines that what waits is predicted for
        self._entries: dict[str, QueueEntry] = {}
        self.paces = PaceLanes()
        self._orders: dict[int, Topology] = {}
        self._make_orders()

    def __len__(self) -> int:
        """Returns the number of requests that wait; running ones do not count."""
        return self.waiting

    def get(self, request_id: str) -> QueueEntry | None:
        return self._entries.get(request_id)

    def entries(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    def queued(self) -> list[QueueEntry]:
        """Returns the queued requests in order of arrival, not of the topology."""
        return [entry for entry in self._entries.values() if entry.state is EntryState.QUEUED]

    @property
    def ready(self) -> int:
        """The number of requests that wait and are not parked."""
        return self.waiting - self.parked

    def refusal(self, entry: QueueEntry) -> str | None:
        """Returns the message of a refusal if the queue has no room for `entry`, otherwise None."""
        return self._bound.refusal(self.waiting, self.queued_tokens, entry)

    def add(self, entry: QueueEntry) -> None:
        """Takes in a new request, parked. The queue must not hold its id yet."""
        entry.queue_length = self.waiting
        entry.grants_before = self.grants
        entry.switches_before = self.switches
        self._entries[entry.request.id] = entry
        self.parked += 1
        self._count(entry)

    def wake(self, entry: QueueEntry) -> None:
        """Gives a parked request its place in the order."""
        entry.enter(EntryState.QUEUED)
        self.parked -= 1
        if not entry.request.relegate:
            self.unwilling[entry.request.id] = entry
        self._enlist(entry)

    def park(self, entry: QueueEntry) -> None:
        """Takes a queued request out of the order, or a running one that lost its engine before its first token; it may
        be granted after `wake`."""
        was = entry.state
        entry.enter(EntryState.PARKED)
        self.parked += 1
        if was is EntryState.RUNNING:
            self.account(entry, 0.0, final=True)
            self._count(entry)
        else:
            self._unorder(entry)

    def run(self, entry: QueueEntry) -> None:
        """Records that a parked request runs already, because its gateway said so."""
        entry.enter(EntryState.RUNNING)
        self.parked -= 1
        self._discount(entry)

    def annotate(self, entry: QueueEntry, annotation: Annotation) -> None:
        if entry.state is EntryState.RUNNING:
            entry.annotate(annotation, self.kinds)
            return
        self._discount(entry)
        entry.annotate(annotation, self.kinds)
        self._count(entry)
        if entry.state is not EntryState.QUEUED:
            return
        if self.paces.of(entry) == entry.lane:
            self._orders[entry.lane].reannotate(entry)
        else:
            self._orders[entry.lane].remove(entry)
            self._enlist(entry)

    def price_for(self, kinds: tuple[EngineKind, ...]) -> None:
        """Predicts what waits for engines of these kinds from now on, one for each engine that is up."""
        if kinds == self.kinds:
            return
        self.kinds = kinds
        for entry in self._entries.values():
            if entry.differs and entry.state is not EntryState.RUNNING:
                self._discount(entry)
                entry.wait_for(kinds)
                self._count(entry)
                if entry.state is EntryState.QUEUED:
                    self._orders[entry.lane].reannotate(entry)

    @property
    def lanes(self) -> tuple[int, ...]:
        """The numbers of the lanes, the strictest first: each is that of the pace class whose engines serve it."""
        return tuple(self._orders)

    def waiting_in(self, lane: int) -> int:
        """Returns how many requests are queued in a lane; those that are parked do not count."""
        return len(self._orders[lane])

    def arrange(self, cuts_s: tuple[float, ...], serving: Sequence[int]) -> bool:
        """Divides what is queued into lanes: pace class i (by `cuts_s`) waits in lane `serving[i]`. Returns false, and
        changes nothing, if it is so already. The topologies' records of past service start afresh."""
        if not self.paces.arrange(cuts_s, serving):
            return False
        self._make_orders()
        return True

    @property
    def paced(self) -> bool:
        """Whether the active order depends on time or on the engines, so that `observe` has to be called."""
        return next(iter(self._orders.values())).paced

    @property
    def sets_aside(self) -> bool:
        """Whether the active order sets aside what cannot be on time."""
        return next(iter(self._orders.values())).sets_aside

    @property
    def uses_tags(self) -> bool:
        """Whether predictions change the active order."""
        return next(iter(self._orders.values())).uses_tags

    def observe(self, view: ServiceView, lane: int = 0) -> None:
        """Tells a lane of the time and of the engines that serve it. What its order then gives up as late goes to the
        laxest lane: there is no pace left to keep for it, and it would fill the engines of a stricter class."""
        order, laxest = self._orders[lane], self.lanes[-1]
        order.observe(view)
        if lane == laxest:
            return
        for entry in order.late():
            order.remove(entry)
            entry.lane = laxest
            self._orders[laxest].push(entry)

    def order(self, lane: int) -> Topology:
        """Returns a lane's order, to be copied and not to be changed."""
        return self._orders[lane]

    def peek(self, lane: int = 0) -> QueueEntry | None:
        return self._orders[lane].peek()

    def promise_s(self, entry: QueueEntry) -> float | None:
        """Returns what the active topology promises the queued `entry` if it is refused now (`Topology.promise_s`)."""
        return self._orders[entry.lane].promise_s(entry)

    def take(self, lane: int = 0) -> QueueEntry:
        """Takes the head out of a lane to run, and returns it. The lane must not be empty."""
        entry = self._orders[lane].pop()
        assert entry is not None
        self._discount(entry)
        self.unwilling.pop(entry.request.id, None)
        self.grants += 1
        # Of what was granted while it waited, at most those ahead of it on arrival had come earlier.
        passed = self.grants - 1 - len(entry.tried) - entry.grants_before - entry.queue_length
        entry.overtaken = max(entry.overtaken, passed, 0)
        entry.enter(EntryState.RUNNING)
        entry.generation = self.generation
        return entry

    def remove(self, entry: QueueEntry) -> None:
        """Removes a request in any state, because it ends here."""
        was = entry.state
        entry.enter(EntryState.ENDED)
        if was is not EntryState.RUNNING:
            self._discount(entry)
        if was is EntryState.QUEUED:
            self._unorder(entry)
        elif was is EntryState.PARKED:
            self.parked -= 1
        del self._entries[entry.request.id]

    def account(self, entry: QueueEntry, service: float, *, final: bool) -> None:
        """Tells the active topology that a running request has received `service` weighted tokens in all.

        Nothing happens if the request was taken from an earlier order. `final`: it receives no more.
        """
        if entry.generation != self.generation:
            return
        order = self._orders[entry.lane]
        if order.accounts_service:
            order.on_served(entry, service, final)

    def switch(self, topology: TopologyName, hints: Hints) -> bool:
        """Orders the queue by `topology` from now on; the topology's record of past service starts afresh. Returns
        false, and changes nothing, if it is in force already with the same hints. `topologies` must have it."""
        if topology == self.topology and hints == self.hints:
            return False
        self.switches += topology != self.topology
        self.topology = topology
        self.hints = hints
        self._make_orders()
        return True

    def _make_orders(self) -> None:
        """Orders all that is queued anew, by the active topology in each lane. What an earlier one had given up is no
        longer given up, unless the new one does so itself."""
        self.generation += 1
        members: dict[int, list[QueueEntry]] = {lane: [] for lane in self.paces.numbers}
        for entry in self.queued():
            entry.lane, entry.relegated = self.paces.of(entry), False
            members[entry.lane].append(entry)
        self._orders = {lane: self.topologies[self.topology](self.hints) for lane in members}
        for lane, entries in members.items():
            self._orders[lane].rebuild(entries)

    def _enlist(self, entry: QueueEntry) -> None:
        entry.lane, entry.relegated = self.paces.of(entry), False
        self._orders[entry.lane].push(entry)

    def _unorder(self, entry: QueueEntry) -> None:
        self._orders[entry.lane].remove(entry)
        self.unwilling.pop(entry.request.id, None)

    def _count(self, entry: QueueEntry) -> None:
        self.waiting += 1
        self.queued_tokens += entry.work_tokens
        self.queued_s += entry.total_s

    def _discount(self, entry: QueueEntry) -> None:
        self.waiting -= 1
        self.queued_tokens -= entry.work_tokens
        # Rounding errors must not outlive the queue they came from.
        self.queued_s = self.queued_s - entry.total_s if self.waiting else 0.0
