"""The request queue: every request the worker holds, and the active topology over those that wait."""

from collections.abc import Iterator

from hmas.contracts.control import SAFE_TOPOLOGY, Hints, TopologyName
from hmas.contracts.request import Annotation
from hmas.worker.agent.config import RandomSource
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.service_view import ServiceView
from hmas.worker.agent.topologies import TOPOLOGIES, Topology


class RequestQueue:
    """Entries by request id, queued and running, in arrival order; one topology orders the queued ones.

    Bounded by `max_queued` requests and `max_queued_tokens` of prompt and predicted output; an empty queue takes one
    request of any size. `queued_s` is the sum of T_tot that waits.
    """

    def __init__(self, max_queued: int, max_queued_tokens: int, rng: RandomSource) -> None:
        self.topology: TopologyName = SAFE_TOPOLOGY
        self.hints = Hints()
        self.generation = 0  # of the order; grows with every switch
        self.switches = 0
        self.dispatches = 0
        self.waiting = 0  # how many are queued
        self.queued_tokens = 0
        self.queued_s = 0.0
        self.unwilling: dict[str, QueueEntry] = {}  # queued, and their tenants prefer a refusal to a late answer
        self._max_queued = max_queued
        self._max_queued_tokens = max_queued_tokens
        self._rng = rng
        self._entries: dict[str, QueueEntry] = {}
        self._order: Topology = TOPOLOGIES[self.topology](self.hints, rng)

    def __len__(self) -> int:
        """How many wait."""
        return self.waiting

    def get(self, request_id: str) -> QueueEntry | None:
        return self._entries.get(request_id)

    def entries(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    def queued(self) -> list[QueueEntry]:
        """Those that wait, in arrival order."""
        return [entry for entry in self._entries.values() if entry.state is EntryState.QUEUED]

    def refusal(self, entry: QueueEntry) -> str | None:
        """Why there is no room for `entry`, or None."""
        queued = self.waiting
        if queued >= self._max_queued:
            return f"{queued} requests are queued, the bound is {self._max_queued}"
        tokens = self.queued_tokens + entry.work_tokens
        if queued and tokens > self._max_queued_tokens:
            return (
                f"{self.queued_tokens} tokens are queued; {entry.work_tokens} more (prompt and predicted output) "
                f"exceed the bound of {self._max_queued_tokens}"
            )
        return None

    def add(self, entry: QueueEntry) -> None:
        """Queue a new request. Its id must not be held."""
        entry.queue_length = self.waiting
        entry.dispatches_before = self.dispatches
        entry.switches_before = self.switches
        self._entries[entry.request.id] = entry
        if not entry.request.relegate:
            self.unwilling[entry.request.id] = entry
        self._enqueue(entry)

    def requeue(self, entry: QueueEntry) -> None:
        """A running request lost its engine before its first token: back to its place in the order."""
        entry.enter(EntryState.QUEUED)
        self.account(entry, 0.0, final=True)
        self._enqueue(entry)

    def annotate(self, entry: QueueEntry, annotation: Annotation) -> None:
        if entry.state is not EntryState.QUEUED:
            entry.annotate(annotation)
            return
        self._discount(entry)
        entry.annotate(annotation)
        self._count(entry)
        self._order.reannotate(entry)

    @property
    def paced(self) -> bool:
        """Whether the order goes by time and service."""
        return self._order.paced

    def observe(self, view: ServiceView) -> None:
        self._order.observe(view)

    def peek(self) -> QueueEntry | None:
        return self._order.peek()

    def promise_s(self, entry: QueueEntry) -> float | None:
        """How long until the queued `entry` finds a place if it comes again, promised; None: the order in force
        promises nothing."""
        return self._order.promise_s(entry)

    def take(self) -> QueueEntry:
        """The head leaves the queue to run. The queue must not be empty."""
        entry = self._order.pop()
        assert entry is not None
        self._discount(entry)
        self.unwilling.pop(entry.request.id, None)
        self.dispatches += 1
        # Of what was dispatched while it waited, at most those ahead of it on arrival had come earlier.
        passed = self.dispatches - 1 - len(entry.tried) - entry.dispatches_before - entry.queue_length
        entry.overtaken = max(entry.overtaken, passed, 0)
        entry.enter(EntryState.RUNNING)
        entry.generation = self.generation
        return entry

    def remove(self, entry: QueueEntry) -> None:
        """The request ends here, queued or running."""
        queued = entry.state is EntryState.QUEUED
        entry.enter(EntryState.ENDED)
        if queued:
            self._order.remove(entry)
            self._discount(entry)
        self.unwilling.pop(entry.request.id, None)
        del self._entries[entry.request.id]

    def account(self, entry: QueueEntry, service: float, *, final: bool) -> None:
        """A running request has received `service` tokens in all; an order it was not taken from does not care."""
        if self._order.accounts_service and entry.generation == self.generation:
            self._order.on_served(entry, service, final)

    def switch(self, topology: TopologyName, hints: Hints) -> bool:
        """Order by `topology` from now on; false if it is in force already. Fairness accounts start afresh."""
        if topology is self.topology and hints == self.hints:
            return False
        self.switches += topology is not self.topology
        self.topology = topology
        self.hints = hints
        self.generation += 1
        self._order = TOPOLOGIES[topology](hints, self._rng)
        self._order.rebuild(self.queued())
        return True

    def _enqueue(self, entry: QueueEntry) -> None:
        self._order.push(entry)
        self._count(entry)

    def _count(self, entry: QueueEntry) -> None:
        self.waiting += 1
        self.queued_tokens += entry.work_tokens
        self.queued_s += entry.total_s

    def _discount(self, entry: QueueEntry) -> None:
        self.waiting -= 1
        self.queued_tokens -= entry.work_tokens
        # Rounding errors must not outlive the queue they came from.
        self.queued_s = self.queued_s - entry.total_s if self.waiting else 0.0
