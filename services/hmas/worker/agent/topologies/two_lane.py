"""Two lanes, fast and slow, by predicted service time; least slack first within each (H-MAS §3.5, Eq. 5)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from hmas.contracts.control import Hints, TopologyName
from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.keyed_heap import KeyedHeap
from hmas.worker.agent.service_view import ServiceView

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
    of the dispatches, spread evenly.
    """

    name = TopologyName.TWO_LANE
    accounts_service = False
    paced = False
    __slots__ = ("_credit", "_fast", "_fixed_gate", "_gate", "_gate_step", "_slow", "_weight")

    def __init__(self, hints: Hints, config: TwoLaneConfig) -> None:
        self._fast: Lane = KeyedHeap()
        self._slow: Lane = KeyedHeap()
        self._fixed_gate = hints.lane_gate_s is not None
        self._gate = hints.lane_gate_s or 0.0
        self._gate_step = config.gate_step
        self._weight = min(1.0 - config.least_weight, max(config.least_weight, hints.fast_weight))
        self._credit = 0.0

    def __len__(self) -> int:
        return len(self._fast) + len(self._slow)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._fast, self._slow)

    def observe(self, view: ServiceView) -> None:
        pass

    def push(self, entry: QueueEntry) -> None:
        self._choose(entry.total_s).push(entry.slack_s, entry)

    def peek(self) -> QueueEntry | None:
        return self._next_lane().peek()

    def pop(self) -> QueueEntry | None:
        lane = self._next_lane()
        item = lane.pop()
        if item is None:
            return None
        key, entry = item
        entry.urgency = key
        if lane is self._fast:
            if self._slow:
                self._credit += self._weight - 1.0
        elif self._fast:
            self._credit += self._weight
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
        pass

    def _choose(self, total_s: float) -> Lane:
        if not self._fixed_gate:
            if self._gate <= 0.0:
                self._gate = total_s
            else:
                self._gate *= self._gate_step if total_s > self._gate else 1.0 / self._gate_step
        return self._fast if total_s <= self._gate else self._slow

    def _next_lane(self) -> Lane:
        if not self._slow:
            return self._fast
        if not self._fast:
            return self._slow
        return self._fast if self._credit + self._weight >= 0.5 else self._slow
