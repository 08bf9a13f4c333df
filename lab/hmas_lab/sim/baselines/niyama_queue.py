"""Niyama's prefill queue and relegated queue (Niyama §3.1, §3.4), with the hybrid priority and the violation checker
that relegates requests."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heappush

from hmas.engine.core.sequence import EngineRequest, Sequence

AT_RISK = 0.25  # an important request with a smaller share of its time to spare relegates the unimportant ones


@dataclass(frozen=True, slots=True)
class NiyamaRequest(EngineRequest):
    """A request with its QoS class. `due_s` is the deadline of its first token (Niyama Eq. 1), or of its last if
    `whole` (Eq. 3). Requests of one `application` share a history of output lengths. An `important` request is
    relegated only when it can no longer meet its deadline."""

    arrival_s: float = 0.0
    due_s: float = 0.0
    whole: bool = False
    application: str = ""
    important: bool = True


class NiyamaLane(IntEnum):
    """Where a request waits. A lower lane is served first; IMPORTANT and LOW are served as one lane."""

    IMPORTANT = 0
    LOW = 1
    RELEGATED = 2  # unimportant requests that were relegated; they may still be in time
    LATE = 3  # requests whose deadline can no longer be met


@dataclass(slots=True, eq=False)
class _Waiting:
    """A waiting request. `seq` numbers the requests in order of arrival."""

    sequence: Sequence
    request: NiyamaRequest
    seq: int
    lane: NiyamaLane


class _Heap:
    """A heap of waiting requests, least key first and ties by arrival; removed entries are dropped from it lazily."""

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
        if self._items[0][1] == entry.seq:  # dropped at once: a preempted request comes back under the same number
            heappop(self._items)
        elif len(self._items) > 2 * len(self._live) + 64:  # so that removed entries do not pile up
            self._items = [item for item in self._items if item[1] in self._live]
            heapify(self._items)

    def rekey(self, key: Callable[[_Waiting], float]) -> None:
        self._items = [(key(entry), seq) for seq, entry in self._live.items()]
        heapify(self._items)


class NiyamaQueue:
    """The waiting requests of one engine, ordered by lane and then by P = due + alpha * work (Niyama Eq. 4 and 5).

    `work_s` estimates the seconds that a request still needs up to the token that its deadline is about. The engine
    core sets `now_s` before each step. Operations take O(log n), except a change of alpha and the relegation of all
    unimportant requests, which take O(n log n).
    """

    def __init__(self, work_s: Callable[[Sequence], float], *, relegation: bool) -> None:
        self.now_s = 0.0
        self.relegations = 0
        self._work_s = work_s
        self._relegation = relegation
        self._alpha = 0.0
        self._lanes: tuple[_Heap, ...] = tuple(_Heap() for _ in NiyamaLane)
        self._known: dict[str, _Waiting] = {}  # requests that wait or whose prompt is half computed

    @property
    def alpha(self) -> float:
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._alpha = value
        for lane in self._lanes:
            lane.rekey(self._priority)

    def key(self, seq: Sequence) -> tuple[float, ...]:
        """Returns the sort key, lower first, of a request whose prompt is not fully computed yet."""
        known = self._known[seq.id]
        return max(known.lane, NiyamaLane.LOW), self._priority(known), known.seq

    def slack_s(self, seq: Sequence) -> float:
        """Returns the seconds to spare before the request's deadline; negative if it can no longer be met."""
        return self._slack_s(self._known[seq.id])

    def forget(self, request_id: str) -> None:
        """Drops what is kept about a request whose prompt is computed or which was aborted."""
        self._known.pop(request_id, None)

    def push(self, seq: Sequence) -> None:
        request = seq.request
        if not isinstance(request, NiyamaRequest):
            raise TypeError(f"request {request.id} is a {type(request).__name__}: Niyama needs a NiyamaRequest")
        lane = NiyamaLane.IMPORTANT if request.important else NiyamaLane.LOW
        self._known[seq.id] = entry = _Waiting(seq, request, seq.order, lane)
        self._lanes[lane].push(self._priority(entry), entry)

    push_back_in = push

    def peek(self) -> Sequence | None:
        self._check()
        head = self._head()
        return None if head is None else head.sequence

    def pop(self) -> Sequence:
        """Removes and returns the request that the last `peek` returned. Raises IndexError if none waits."""
        head = self._head()
        if head is None:
            raise IndexError("pop from an empty queue: call peek first, which returns None if no request waits")
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
        """Relegates requests (Niyama's violation checker): no request that will be late is served before one that will
        not, and unimportant requests are relegated as soon as an important one is at risk."""
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
        if entry.sequence.generated:  # it was preempted after its first token and only waits for memory
            return 0.0
        return entry.request.due_s - self.now_s - self._work_s(entry.sequence)

    def _priority(self, entry: _Waiting) -> float:
        return entry.request.due_s + self._alpha * self._work_s(entry.sequence)
