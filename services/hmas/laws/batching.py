"""Gathers calls of several items each into batches for a model that may be late, fail or return nonsense.

One batch runs at a time, and none is delayed to become fuller: while one runs, the next fills by itself. A call is
answered by its deadline at the latest; each item that the model has not answered by then gets the fallback's answer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Generic, assert_never

from hmas.contracts.cognition import (
    Answer,
    AnswerCall,
    BatchFailed,
    BatchReturned,
    CallReceived,
    Item,
    Result,
    Row,
    RunBatch,
)
from hmas.contracts.control_agents import TimerTicked
from hmas.laws.cpu_share import CpuShare


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Bounds of a batch queue, both in items. `split` true allows a call to be spread over several batches; otherwise
    a call with more than `max_batch` items gets a batch of its own."""

    max_batch: int
    max_queued: int  # a call that would exceed it is answered by the fallback at once
    split: bool


@dataclass(slots=True, kw_only=True)
class _Call(Generic[Item, Answer]):
    number: int
    items: tuple[Item, ...]
    deadline_s: float
    beyond: tuple[Answer, ...]  # to the call's last items, which are not for the model
    taken: int = 0  # items that went into a batch
    answers: list[Answer] = field(default_factory=list)  # of the first items, because batches end in their order

    @property
    def left(self) -> int:
        return len(self.items) - self.taken


class BatchQueue(Generic[Item, Row, Result, Answer]):
    """Batches calls for a model and answers each call once.

    `row` gives what the model reads of an item. `accept` makes the answer from the model's result for the item.
    `fall_back` makes the answer without a result, for a reason: queue_full, cpu_share (what exceeds `share`, if that is
    given, is answered at once), late, failed, or invalid if the model returned another number of results than rows.
    """

    def __init__(
        self,
        limits: BatchLimits,
        row: Callable[[Item], Row],
        accept: Callable[[float, Item, Result], Answer],
        fall_back: Callable[[float, Item, str], Answer],
        share: CpuShare | None = None,
    ) -> None:
        self._limits = limits
        self._row = row
        self._accept = accept
        self._fall_back = fall_back
        self._share = share
        self._open: dict[int, _Call[Item, Answer]] = {}  # not answered yet, in order of arrival
        self._waiting: deque[_Call[Item, Answer]] = deque()  # calls with items that are in no batch yet
        self._running: list[tuple[_Call[Item, Answer], slice]] = []  # (call, which of its items)
        self._batch = 0

    def step(
        self, now_s: float, event: CallReceived[Item] | BatchReturned[Result] | BatchFailed | TimerTicked
    ) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        match event:
            case CallReceived():
                return self._called(now_s, event)
            case BatchReturned(batch, results, cpu_s):
                return self._returned(now_s, batch, results, cpu_s, "invalid")
            case BatchFailed(batch, _, cpu_s):
                return self._returned(now_s, batch, (), cpu_s, "failed")
            case TimerTicked():
                return self._expire(now_s)
            case _:
                assert_never(event)

    def _called(self, now_s: float, event: CallReceived[Item]) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        if sum(call.left for call in self._waiting) + len(event.items) > self._limits.max_queued:
            return [AnswerCall(event.call, tuple(self._fall_back(now_s, item, "queue_full") for item in event.items))]
        taken = self._take(now_s, len(event.items))
        beyond = tuple(self._fall_back(now_s, item, "cpu_share") for item in event.items[taken:])
        if not taken:
            return [AnswerCall(event.call, beyond)]
        call: _Call[Item, Answer] = _Call(
            number=event.call, items=event.items[:taken], deadline_s=now_s + event.budget_s, beyond=beyond
        )
        self._open[call.number] = call
        self._waiting.append(call)
        return self._next_batch()

    def _take(self, now_s: float, items: int) -> int:
        """Returns how many of a call's first items the model takes."""
        if self._share is None:
            return items
        taken = min(items, self._share.room(now_s))
        self._share.take(taken)
        return taken

    def _next_batch(self) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        if self._running or not self._waiting:
            return []
        rows: list[Row] = []
        while self._waiting and (room := self._limits.max_batch - len(rows)) > 0:
            call = self._waiting[0]
            taken = min(call.left, room) if self._limits.split else call.left
            if rows and taken > room:
                break
            part = slice(call.taken, call.taken + taken)
            self._running.append((call, part))
            rows += map(self._row, call.items[part])
            call.taken += taken
            if not call.left:
                self._waiting.popleft()
        self._batch += 1
        return [RunBatch(self._batch, tuple(rows))]

    def _returned(
        self, now_s: float, batch: int, results: Sequence[Result], cpu_s: float, reason: str
    ) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        if batch != self._batch or not self._running:
            return []
        parts, self._running = self._running, []
        rows = sum(part.stop - part.start for _, part in parts)
        if self._share is not None:
            self._share.settle(rows, cpu_s)
        usable = len(results) == rows
        unread = iter(results)
        effects: list[RunBatch[Row] | AnswerCall[Answer]] = []
        for call, part in parts:
            items = call.items[part]
            own = list(islice(unread, len(items)))
            if call.number not in self._open:
                continue  # the call was answered at its deadline
            if usable:
                call.answers += map(self._accept, repeat(now_s), items, own)
            else:
                call.answers += (self._fall_back(now_s, item, reason) for item in items)
            if len(call.answers) == len(call.items):
                effects.append(self._answer(call))
        return [*effects, *self._next_batch()]

    def _expire(self, now_s: float) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        late = [call for call in self._open.values() if now_s >= call.deadline_s]
        if not late:
            return []
        for call in late:
            call.answers += [self._fall_back(now_s, item, "late") for item in call.items[len(call.answers) :]]
            if self._share is not None:
                self._share.release(call.left)
        effects: list[RunBatch[Row] | AnswerCall[Answer]] = [self._answer(call) for call in late]
        self._waiting = deque(call for call in self._waiting if call.number in self._open)
        return effects

    def _answer(self, call: _Call[Item, Answer]) -> AnswerCall[Answer]:
        del self._open[call.number]
        return AnswerCall(call.number, (*call.answers, *call.beyond))
