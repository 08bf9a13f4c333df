"""Niyama's prefill queue and relegated queue (§3.1, §3.4): hybrid priority, the violation checker, who steps aside."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush

from hmas.engine.core.sequence import EngineRequest, Sequence

AT_RISK = 0.25  # share of its time that is left when an important request calls on the others to step aside


@dataclass(frozen=True, slots=True)
class NiyamaRequest(EngineRequest):
    """`due_s`: of the first token (Niyama Eq. 1), with `whole` of the last (Eq. 3). Requests of one `application` share
    a history of output lengths. What is `important` is relegated last."""

    arrival_s: float = 0.0
    due_s: float = 0.0
    whole: bool = False
    application: str = ""
    important: bool = True


class NiyamaLane(IntEnum):
    """Where a request waits; a lower one is served first, the first two together."""

    IMPORTANT = 0
    LOW = 1
    RELEGATED = 2  # of low priority, stepped aside; may still be in time
    LATE = 3  # its deadline can no longer be kept


@dataclass(slots=True, eq=False)
class _Waiting:
    """`seq` is its arrival's number."""

    sequence: Sequence
    request: NiyamaRequest
    seq: int
    lane: NiyamaLane


class _Heap:
    """Least key first, ties by arrival; what is removed leaves the heap lazily."""

    def __init__(self) -> None:
        self._items: list[tuple[float, int]] = []
        self._live: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[_Waiting]:
        return iter(self._live.values())

    def push(self, key: float, entry: _Waiting) -> None:
        self._live[entry.seq] = entry
        heappush(self._items, (key, entry.seq))

    def peek(self) -> _Waiting | None:
        while self._items and self._items[0][1] not in self._live:
            heappop(self._items)
        return self._live[self._items[0][1]] if self._items else None

    def remove(self, entry: _Waiting) -> None:
        del self._live[entry.seq]
        if self._items[0][1] == entry.seq:  # at once: a preempted request comes back under its number
            heappop(self._items)
        elif len(self._items) > 2 * len(self._live) + 64:  # keep what was removed lazily from piling up
            self._items = [item for item in self._items if item[1] in self._live]
            heapify(self._items)

    def rekey(self, key: Callable[[_Waiting], float]) -> None:
        self._items = [(key(entry), seq) for seq, entry in self._live.items()]
        heapify(self._items)


class NiyamaQueue:
    """Waiting requests of one engine by lane and P = due + alpha * work (Niyama Eq. 4 and 5).

    `work_s` estimates the seconds a request still needs to the token that its deadline is about. The driver sets
    `now_s`. O(log n), save a change of alpha, and the step aside of all that is of low priority.
    """

    def __init__(self, work_s: Callable[[Sequence], float], *, relegation: bool) -> None:
        self.now_s = 0.0
        self.relegations = 0
        self._work_s = work_s
        self._relegation = relegation
        self._alpha = 0.0
        self._lanes: tuple[_Heap, ...] = tuple(_Heap() for _ in NiyamaLane)
        self._known: dict[str, _Waiting] = {}  # waiting or half computed

    @property
    def alpha(self) -> float:
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = value
        for lane in self._lanes:
            lane.rekey(self._priority)

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """The order over all whose prompt is not computed yet."""
        known = self._known[seq.id]
        return max(known.lane, NiyamaLane.LOW), self._priority(known), known.seq

    def slack_s(self, seq: Sequence) -> float:
        """Time to spare before its deadline; negative: it can no longer be kept."""
        return self._slack_s(self._known[seq.id])

    def forget(self, request_id: str) -> None:
        """Its prompt is computed, or it is gone."""
        self._known.pop(request_id, None)

    def push(self, seq: Sequence) -> None:
        request = seq.request
        if not isinstance(request, NiyamaRequest):
            raise TypeError(f"request {request.id} has no QoS class: give a NiyamaRequest")
        lane = NiyamaLane.IMPORTANT if request.important else NiyamaLane.LOW
        self._known[seq.id] = entry = _Waiting(seq, request, seq.order, lane)
        self._lanes[lane].push(self._priority(entry), entry)

    push_back_in = push

    def peek(self) -> Sequence | None:
        self._check()
        head = self._head()
        return None if head is None else head.sequence

    def pop(self) -> Sequence:
        """What `peek` showed."""
        head = self._head()
        if head is None:
            raise IndexError("pop from an empty queue")
        self._lanes[head.lane].remove(head)
        return head.sequence

    def remove(self, seq: Sequence) -> None:
        entry = self._known.pop(seq.id)
        self._lanes[entry.lane].remove(entry)

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def _head(self) -> _Waiting | None:
        important, low = self._lanes[NiyamaLane.IMPORTANT].peek(), self._lanes[NiyamaLane.LOW].peek()
        if important is None or low is None:
            return important or low or self._lanes[NiyamaLane.RELEGATED].peek() or self._lanes[NiyamaLane.LATE].peek()
        return important if self._priority(important) <= self._priority(low) else low

    def _check(self) -> None:
        """The violation checker: nobody who will be late is served before those who will not, and where important
        requests run late, the others step aside first."""
        if not self._relegation:
            return
        important, low = self._lanes[NiyamaLane.IMPORTANT], self._lanes[NiyamaLane.LOW]
        if len(low) and (head := important.peek()) is not None and self._at_risk(head):
            for entry in list(low):
                self._move(entry, NiyamaLane.RELEGATED)
        while (head := self._head()) is not None and head.lane is not NiyamaLane.LATE and self._slack_s(head) < 0.0:
            self._move(head, NiyamaLane.LATE)

    def _move(self, entry: _Waiting, lane: NiyamaLane) -> None:
        self._lanes[entry.lane].remove(entry)
        self.relegations += 1
        entry.lane = lane
        self._lanes[lane].push(self._priority(entry), entry)

    def _at_risk(self, entry: _Waiting) -> bool:
        request = entry.request
        return self._slack_s(entry) < AT_RISK * (request.due_s - request.arrival_s)

    def _slack_s(self, entry: _Waiting) -> float:
        if entry.sequence.generated:  # preempted: its first token is out, the rest only waits for memory
            return 0.0
        return entry.request.due_s - self.now_s - self._work_s(entry.sequence)

    def _priority(self, entry: _Waiting) -> float:
        return entry.request.due_s + self._alpha * self._work_s(entry.sequence)
