"""Two lanes, fast and slow, by predicted service time; least slack first within each (H-MAS §3.5, Eq. 5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from statistics import median

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap

Lane = KeyedHeap[QueueEntry]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoLaneConfig:
    gate_step: float = 1.02  # factor by which the running median moves per request
    least_weight: float = 0.05  # least share of the dispatches for either lane, so that neither starves


def _slack(entry: QueueEntry) -> float:
    return entry.slack_s


class TwoLane:
    """Puts requests with T_tot at or below a gate, in seconds, into a fast lane and the others into a slow one.

    The gate is the hint `lane_gate_s`, or else the median of T_tot, exact at a rebuild and tracked from then on by a
    stochastic approximation in log scale (Robbins and Monro 1951). A request keeps its lane when the gate moves, and
    chooses anew when its estimate changes. While requests wait in both lanes, the fast one gets the share `fast_weight`
    of the dispatches, spread evenly. By the hint `fast_slots` each lane has slots of its own, at least one, and while
    these are taken its requests wait, even where the other lane has some left. What ran before this order was in force
    takes none of them.
    """

    name = TopologyName.TWO_LANE
    sets_aside = False
    uses_tags = True
    __slots__ = (
        "_credit", "_fast", "_fast_running", "_fast_share", "_fast_slots", "_fixed_gate", "_gate", "_gate_step",
        "_slow", "_slow_running", "_slow_slots", "_weight", "accounts_service", "paced",
    )  # fmt: skip

    def __init__(self, hints: Hints, config: TwoLaneConfig) -> None:
        self._fast: Lane = KeyedHeap()
        self._slow: Lane = KeyedHeap()
        self._fixed_gate = hints.lane_gate_s is not None
        self._gate = hints.lane_gate_s or 0.0
        self._gate_step = config.gate_step
        self._weight = min(1.0 - config.least_weight, max(config.least_weight, hints.fast_weight))
        self._credit = 0.0
        self._fast_share = hints.fast_slots
        self.accounts_service = self.paced = hints.fast_slots is not None
        self._fast_slots: float = inf
        self._slow_slots: float = inf
        self._fast_running: set[str] = set()  # ids of requests; both stay empty where all slots are for both lanes
        self._slow_running: set[str] = set()

    def __len__(self) -> int:
        return len(self._fast) + len(self._slow)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._fast, self._slow)

    def observe(self, view: ServiceView) -> None:
        if self._fast_share is None:
            return
        slots = sum([engine.cap for engine in view.engines])
        self._fast_slots = max(1, min(slots - 1, round(self._fast_share * slots)))
        self._slow_slots = max(1, slots - self._fast_slots)

    def push(self, entry: QueueEntry) -> None:
        self._choose(entry.total_s).push(entry.slack_s, entry)

    def peek(self) -> QueueEntry | None:
        if self._fast_next():
            return self._fast.peek()
        return self._slow.peek() if self._slow_ready() else None

    def pop(self) -> QueueEntry | None:
        fast = self._fast_next()
        if not fast and not self._slow_ready():
            return None
        if self._fast_ready() and self._slow_ready():
            self._credit += self._weight - fast
        item = (self._fast if fast else self._slow).pop()
        assert item is not None
        key, entry = item
        entry.urgency = key
        if self.accounts_service:
            (self._fast_running if fast else self._slow_running).add(entry.request.id)
        return entry

    def remove(self, entry: QueueEntry) -> None:
        (self._fast if entry in self._fast else self._slow).remove(entry)

    def reannotate(self, entry: QueueEntry) -> None:
        self.remove(entry)
        self.push(entry)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        waiting = list(entries)
        if waiting and not self._fixed_gate:
            self._gate = median(entry.total_s for entry in waiting)
        fast = [entry for entry in waiting if entry.total_s <= self._gate]
        slow = [entry for entry in waiting if entry.total_s > self._gate]
        self._fast.refill(fast, _slack)
        self._slow.refill(slow, _slack)

    def late(self) -> Sequence[QueueEntry]:
        return ()

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        if final:
            self._fast_running.discard(entry.request.id)
            self._slow_running.discard(entry.request.id)

    def why(self, entry: QueueEntry, now_s: float) -> str:
        return f"laxity {entry.slack_s - now_s:.1f} s in the lane for {entry.total_s:.1f} s of work"

    def _choose(self, total_s: float) -> Lane:
        if not self._fixed_gate:
            if self._gate <= 0.0:
                self._gate = total_s
            else:
                self._gate *= self._gate_step if total_s > self._gate else 1.0 / self._gate_step
        return self._fast if total_s <= self._gate else self._slow

    def _fast_next(self) -> bool:
        """Whether the next request is one of the fast lane."""
        return self._fast_ready() and (not self._slow_ready() or self._credit + self._weight >= 0.5)

    def _fast_ready(self) -> bool:
        return len(self._fast) > 0 and len(self._fast_running) < self._fast_slots

    def _slow_ready(self) -> bool:
        return len(self._slow) > 0 and len(self._slow_running) < self._slow_slots
