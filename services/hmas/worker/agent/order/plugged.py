"""Orders from packages, which may fail as nothing built in may: what one raises or answers stops no dispatch.

Invariants:
- Whatever an order of a package does, every queued entry leaves once, and `pop` returns what `peek` returned.
  [tests/worker/test_plugged_orders.py::test_one_that_fails_is_taken_out_and_every_request_is_served]
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from math import isnan
from typing import Any, cast

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology, Topology
from hmas.worker.agent.order.topologies.fcfs import Fcfs

MAX_ERROR_CHARS, MAX_FAULT_CHARS = 200, 400
RAISED = (Exception, SystemExit)  # what a package may raise without an end of the worker
Watch = Callable[..., Any]  # watch(call, *arguments) makes a call, and raises if it takes too long


def unwatched(call: Callable[..., Any], *arguments: object) -> Any:
    """Makes the call, however long it takes."""
    return call(*arguments)


def plugged(topologies: Mapping[str, MakeTopology], watch: Watch = unwatched) -> dict[str, MakeTopology]:
    """Returns the makers by name, those that are not built in with a guard around what they make. A maker is looked up
    when an order is made, so that a mapping may load it then."""

    def guarded(name: str) -> MakeTopology:
        return lambda hints: PluggedOrder(TopologyName(name), lambda told: topologies[name](told), hints, watch)

    return {name: TOPOLOGIES[name] if name in TOPOLOGIES else guarded(name) for name in topologies}


class PluggedOrder:
    """An order of a package, and the order of arrival from its first fault on.

    `fault` says in words what it did: it raised, a call took too long (which `watch` finds), or it answered what it may
    not. None while there is none. What the order says of itself (`paced` and its like) is read once.
    """

    __slots__ = (
        "_head", "_held", "_order", "_watch", "accounts_service", "fault", "name", "paced", "sets_aside", "uses_tags",
    )  # fmt: skip

    def __init__(self, name: TopologyName, make: MakeTopology, hints: Hints, watch: Watch = unwatched) -> None:
        self.name = name
        self.fault: str | None = None
        self._watch = watch
        self._held: dict[str, QueueEntry] = {}  # by request, in the order in which they came
        self._head: QueueEntry | None = None  # what `peek` returned since the last change
        self._order: Topology = Fcfs()
        try:
            self._order = watch(make, hints)
            self._describe()
        except RAISED as error:
            self.fail(f"the call that makes it raised {_told(error)}")

    def _describe(self) -> None:
        order = self._order
        self.accounts_service, self.paced = bool(order.accounts_service), bool(order.paced)
        self.sets_aside, self.uses_tags = bool(order.sets_aside), bool(order.uses_tags)

    @property
    def guarded(self) -> Topology:
        """What the package made; after a fault what took its place."""
        return self._order

    def fail(self, fault: str) -> None:
        """Puts the order of arrival in its place, and notes why."""
        self.fault = fault[:MAX_FAULT_CHARS]
        self._order = Fcfs()
        self._describe()
        self._order.rebuild(self._held.values())

    def _ask(self, method: str, *arguments: object) -> Any:
        """Returns the order's answer; None if it raises, and it has failed then."""
        try:
            return self._watch(getattr(self._order, method), *arguments)
        except RAISED as error:
            self.fail(f"{method} raised {_told(error)}")
            return None

    def _holds(self, entry: object) -> bool:
        return isinstance(entry, QueueEntry) and self._held.get(entry.request.id) is entry

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._held.values())

    def observe(self, view: ServiceView) -> None:
        self._head = None
        self._ask("observe", view)

    def push(self, entry: QueueEntry) -> None:
        self._head = None
        self._held[entry.request.id] = entry
        self._ask("push", entry)

    def peek(self) -> QueueEntry | None:
        head = self._ask("peek")
        if self.fault is None and head is not None and not self._holds(head):
            self.fail("peek returned what is not queued")
        if self.fault is not None:
            head = self._order.peek()
        self._head = head
        return cast(QueueEntry | None, head)

    def pop(self) -> QueueEntry | None:
        head = self._head if self._head is not None else self.peek()
        self._head = None
        if self.fault is None:
            popped = self._ask("pop")
            if self.fault is None and popped is not head:
                self.fail("pop returned another request than peek")
        if head is None:
            return None
        if self.fault is not None:
            self._order.remove(head)
            head.urgency = head.request.arrival_s
        del self._held[head.request.id]
        urgency: object = head.urgency
        if not isinstance(urgency, int | float) or isnan(urgency):
            head.urgency = head.request.arrival_s
            self.fail(f"urgency {urgency!r} is not a number")
        return head

    def remove(self, entry: QueueEntry) -> None:
        self._head = None
        del self._held[entry.request.id]
        self._ask("remove", entry)

    def reannotate(self, entry: QueueEntry) -> None:
        self._head = None
        self._ask("reannotate", entry)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        self._head = None
        self._held = {entry.request.id: entry for entry in entries}
        self._ask("rebuild", list(self._held.values()))

    def late(self) -> Sequence[QueueEntry]:
        found = self._ask("late")
        if self.fault is not None:
            return ()
        try:
            late = tuple(found)
        except TypeError:
            late = (found,)
        if all(map(self._holds, late)) and len(set(map(id, late))) == len(late):
            return late
        self.fail("late returned what is not queued")
        return ()

    def promise_s(self, entry: QueueEntry) -> float | None:
        promise_s = self._ask("promise_s", entry)
        if promise_s is None or (isinstance(promise_s, int | float) and promise_s >= 0.0):
            return promise_s
        self.fail(f"promise_s {promise_s!r} is no number of seconds")
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        self._ask("on_served", entry, tokens, final)

    def why(self, entry: QueueEntry, now_s: float) -> str:
        words = self._ask("why", entry, now_s)
        return words if isinstance(words, str) else "by its order, which does not say why"

    def __deepcopy__(self, memo: dict[int, object]) -> "PluggedOrder":
        """Returns a copy that fails for itself alone."""
        twin = copy(self)
        twin._held = {name: deepcopy(entry, memo) for name, entry in self._held.items()}
        twin._head = None
        try:
            twin._order = deepcopy(self._order, memo)
        except RAISED as error:
            twin.fail(f"its copy raised {_told(error)}")
        return twin


def _told(error: BaseException) -> str:
    """Returns an exception in words, with the line that it came from: the last one of the package, if one is of it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    place, trace, of_package = "", error.__traceback__, False
    while trace is not None:
        ours = str(trace.tb_frame.f_globals.get("__name__")).startswith("hmas.")
        if not (ours and of_package):
            place = f" (in {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}, line {trace.tb_lineno})"
            of_package = not ours
        trace = trace.tb_next
    return text[:MAX_ERROR_CHARS] + place
