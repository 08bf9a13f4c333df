"""Hybrid: Niyama's prioritisation between EDF and the shortest first, with eager relegation (§3.4).

The request with the least P = due + alpha * work / weight comes first; the weight, 1 by default, is what it is worth to
be on time (H-MAS Eq. 1). An interactive request is due with its first token, and its work is the prefill (Eq. 4); one
that is judged on the last token alone is due with that token, and its work is prefill and decode at the length that its
application usually has (Eq. 5). alpha follows the load between the bounds in the hints: 0 is EDF, a large one serves
the shortest work first.

A request that can no longer be on time is relegated, not refused; and while an important request is at risk, none of
low priority starts. Relegated requests are served when no others wait, the oldest first, and get a small share of the
service that grows with their age while others do, so that none starves. Prompts are not cut into chunks here: requests
that have not begun wait in the worker, where an urgent one overtakes them, and those that have begun are left to the
engine (dynamic chunking, §3.3).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from hmas.contracts.control import Hints, TopologyName
from hmas.laws.niyama import LoadAlpha
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import KeyedHeap, Rank
from hmas.worker.agent.order.relegated import Relegated, RelegatedConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridConfig:
    at_risk: float = 0.25  # an important request with less than this share of its time to spare goes before low ones
    moves: int = 32  # most entries that change their place per `observe`: they take a third of a millisecond
    relegated: RelegatedConfig = field(default_factory=RelegatedConfig)


class HybridLane:
    """Requests ordered by P. After alpha has changed, their keys are computed anew a few at a time."""

    __slots__ = ("_new", "_old")

    def __init__(self) -> None:
        self._new: KeyedHeap[QueueEntry] = KeyedHeap()
        self._old: KeyedHeap[QueueEntry] = KeyedHeap()

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._new, self._old)

    def __contains__(self, entry: QueueEntry) -> bool:
        return entry in self._new or entry in self._old

    @property
    def stale(self) -> int:
        return len(self._old)

    def push(self, key: float, entry: QueueEntry) -> None:
        self._new.push(key, entry)

    def peek(self) -> tuple[float, QueueEntry] | None:
        """Returns (P, entry) of the entry with the least key; None if the lane is empty."""
        new, old = self._new.peek(), self._old.peek() if len(self._old) else None
        head = new if old is None or (new is not None and _rank(new) < _rank(old)) else old
        return None if head is None else (_rank(head)[0], head)

    def remove(self, entry: QueueEntry) -> None:
        (self._new if entry in self._new else self._old).remove(entry)

    def age(self) -> None:
        """Marks all keys as stale, because alpha has changed. None may be stale before."""
        self._new, self._old = self._old, self._new

    def oldest(self) -> QueueEntry | None:
        """Takes out and returns the entry with the least stale key; None if no key is stale."""
        item = self._old.pop()
        return None if item is None else item[1]


def _rank(entry: QueueEntry) -> Rank:
    """Returns the rank of an entry that is in a lane."""
    assert entry.rank is not None
    return entry.rank


class Hybrid:
    """Keeps requests in three lanes: important (priority 0 or less), low (priority above 0), both ordered by P, and
    relegated, ordered by arrival."""

    name = TopologyName.HYBRID
    accounts_service = False
    paced = True
    sets_aside = True
    uses_tags = True
    __slots__ = ("_alpha", "_config", "_important", "_low", "_moves", "_now_s", "_relegated", "_relegations")

    def __init__(self, hints: Hints, config: HybridConfig) -> None:
        self._config = config
        self._alpha = LoadAlpha(hints.alpha_low, max(hints.alpha_low, hints.alpha_high))
        self._now_s = float("-inf")
        self._important, self._low = HybridLane(), HybridLane()
        self._relegated = Relegated(config.relegated)
        self._relegations = 0
        self._moves = config.moves  # left until the clock is seen again

    def __len__(self) -> int:
        return len(self._important) + len(self._low) + len(self._relegated)

    def __iter__(self) -> Iterator[QueueEntry]:
        return chain(self._important, self._low, self._relegated)

    @property
    def alpha(self) -> float:
        return self._alpha.value

    def observe(self, view: ServiceView) -> None:
        self._now_s = view.now_s
        self._moves = self._config.moves
        lanes = (self._important, self._low)
        if not any(lane.stale for lane in lanes) and self._alpha.step(view.now_s, self._relegations):
            for lane in lanes:
                lane.age()
        for lane in lanes:
            while self._moves and (entry := lane.oldest()) is not None:
                self._moves -= 1
                lane.push(self._priority(entry), entry)

    def push(self, entry: QueueEntry) -> None:
        if entry.relegated:
            self._relegated.add(entry, work_s(entry))
        else:
            self._lane(entry).push(self._priority(entry), entry)

    def peek(self) -> QueueEntry | None:
        """Returns the next entry, and relegates the late ones that it meets. If more are late than may be moved at
        once, a late one is returned as it is, so that no engine idles."""
        while (found := self._head()) is not None:
            entry = found[1]
            if entry.relegated or slack_s(entry, self._now_s) >= 0.0:
                return entry
            if not self._moves:
                return entry
            self._moves -= 1
            self._relegate(entry)
        return None

    def pop(self) -> QueueEntry | None:
        entry = self.peek()
        if entry is None:
            return None
        entry.urgency = self._priority(entry)
        self.remove(entry)
        if entry.relegated:
            self._relegated.spend(work_s(entry))
        else:
            self._relegated.earn(self._now_s, work_s(entry))
        return entry

    def remove(self, entry: QueueEntry) -> None:
        if entry.relegated:
            self._relegated.remove(entry)
        else:
            self._lane(entry).remove(entry)

    def reannotate(self, entry: QueueEntry) -> None:
        self.remove(entry)
        entry.relegated = False
        self.push(entry)

    def rebuild(self, entries: Iterable[QueueEntry]) -> None:
        for entry in entries:
            entry.relegated = False
            self.push(entry)

    def late(self) -> Sequence[QueueEntry]:
        self.peek()  # sets aside what it meets
        return list(islice(self._relegated, self._config.moves))

    def promise_s(self, entry: QueueEntry) -> float | None:
        return None

    def on_served(self, entry: QueueEntry, tokens: float, final: bool) -> None:
        pass

    def why(self, entry: QueueEntry, now_s: float) -> str:
        importance = "less important" if entry.request.priority > 0 else "important"
        return f"{importance}, to start within {entry.spare_s(now_s):.1f} s"

    def _lane(self, entry: QueueEntry) -> HybridLane:
        return self._low if entry.request.priority > 0 else self._important

    def _priority(self, entry: QueueEntry) -> float:
        return due_s(entry) + self._alpha.value * work_s(entry) / entry.utility

    def _relegate(self, entry: QueueEntry) -> None:
        self._lane(entry).remove(entry)
        self._relegations += 1
        self._relegated.add(entry, work_s(entry))

    def _head(self) -> tuple[float, QueueEntry] | None:
        important, low = self._important.peek(), self._low.peek()
        relegated = self._relegated.claimant() if important or low else self._relegated.oldest()
        if relegated is not None:
            return 0.0, relegated
        if important is None or low is None:
            return important or low
        if important[0] <= low[0] or self._at_risk(important[1]):
            return important
        return low

    def _at_risk(self, entry: QueueEntry) -> bool:
        return slack_s(entry, self._now_s) < self._config.at_risk * (due_s(entry) - entry.request.arrival_s)


def due_s(entry: QueueEntry) -> float:
    """Returns the instant at which the token is due that the request is judged on: the last token if its SLO is for the
    whole answer, otherwise the first."""
    return entry.deadline_s if entry.slo.whole else entry.ttft_deadline_s


def work_s(entry: QueueEntry) -> float:
    """Returns the predicted engine seconds up to the token that the request is judged on: Prefill_rem, plus Decode_rem
    if its SLO is for the whole answer."""
    if not entry.slo.whole:
        return entry.prefill_s
    tokens = entry.usual_tokens if entry.usual_tokens is not None else entry.predicted_p90
    return entry.prefill_s + entry.tpot_s * tokens


def slack_s(entry: QueueEntry, now_s: float) -> float:
    """Returns the seconds to spare if the request began at `now_s`; negative means that it will be late."""
    return due_s(entry) - now_s - work_s(entry)
