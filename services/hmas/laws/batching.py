"""Calls of several items each, batched for a model that may be late, fail or answer nonsense.

One batch runs at a time, and none is held back to become fuller: while one runs, the next fills by itself. A call is
answered by its deadline at the latest, with the fallback's answer to each item that the model has not answered.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Both bounds in items. `split`: a call may be spread over several batches; else one that is larger than a batch
    gets a batch of its own."""

    max_batch: int
    max_queued: int  # above it a call is answered by the fallback at once
    split: bool


@dataclass(slots=True, kw_only=True)
class _Call(Generic[Item, Answer]):
    number: int
    items: tuple[Item, ...]
    deadline_s: float
    answers: list[Answer | None]
    missing: int
    taken: int = 0  # items that went into a batch

    @property
    def left(self) -> int:
        return len(self.items) - self.taken


class BatchQueue(Generic[Item, Row, Result, Answer]):
    """`row` is what the model sees of an item, `accept` makes an answer of the model's result, `fall_back` one without
    it for a reason: queue_full, late, failed, or invalid where there are not as many results as rows."""

    def __init__(
        self,
        limits: BatchLimits,
        row: Callable[[Item], Row],
        accept: Callable[[float, Item, Result], Answer],
        fall_back: Callable[[float, Item, str], Answer],
    ) -> None:
        self._limits = limits
        self._row = row
        self._accept = accept
        self._fall_back = fall_back
        self._open: dict[int, _Call[Item, Answer]] = {}  # not answered yet, in order of arrival
        self._waiting: deque[_Call[Item, Answer]] = deque()  # with items left
        self._running: list[tuple[_Call[Item, Answer], int]] = []  # (call, index of the item)
        self._batch = 0

    def step(
        self, now_s: float, event: CallReceived[Item] | BatchReturned[Result] | BatchFailed | TimerTicked
    ) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        match event:
            case CallReceived():
                return self._called(now_s, event)
            case BatchReturned(batch, results):
                return self._returned(now_s, batch, results, "invalid")
            case BatchFailed(batch, _):
                return self._returned(now_s, batch, (), "failed")
            case TimerTicked():
                return self._expire(now_s)
            case _:
                assert_never(event)

    def _called(self, now_s: float, event: CallReceived[Item]) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        count = len(event.items)
        if sum(call.left for call in self._waiting) + count > self._limits.max_queued:
            return [AnswerCall(event.call, tuple(self._fall_back(now_s, item, "queue_full") for item in event.items))]
        if not count:
            return [AnswerCall(event.call, ())]
        call = _Call[Item, Answer](
            number=event.call,
            items=event.items,
            deadline_s=now_s + event.budget_s,
            answers=[None] * count,
            missing=count,
        )
        self._open[call.number] = call
        self._waiting.append(call)
        return self._next_batch()

    def _next_batch(self) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        if self._running or not self._waiting:
            return []
        while self._waiting and (room := self._limits.max_batch - len(self._running)) > 0:
            call = self._waiting[0]
            taken = min(call.left, room) if self._limits.split else call.left
            if self._running and taken > room:
                break
            self._running += ((call, index) for index in range(call.taken, call.taken + taken))
            call.taken += taken
            if not call.left:
                self._waiting.popleft()
        self._batch += 1
        return [RunBatch(self._batch, tuple(self._row(call.items[index]) for call, index in self._running))]

    def _returned(
        self, now_s: float, batch: int, results: Sequence[Result], reason: str
    ) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        if batch != self._batch or not self._running:
            return []
        rows, self._running = self._running, []
        usable = len(results) == len(rows)
        effects: list[RunBatch[Row] | AnswerCall[Answer]] = []
        for position, (call, index) in enumerate(rows):
            if call.number not in self._open:
                continue  # answered at its deadline
            item = call.items[index]
            call.answers[index] = (
                self._accept(now_s, item, results[position]) if usable else self._fall_back(now_s, item, reason)
            )
            call.missing -= 1
            if not call.missing:
                effects.append(self._answer(call))
        return [*effects, *self._next_batch()]

    def _expire(self, now_s: float) -> list[RunBatch[Row] | AnswerCall[Answer]]:
        late = [call for call in self._open.values() if now_s >= call.deadline_s]
        if not late:
            return []
        for call in late:
            for index, item in enumerate(call.items):
                if call.answers[index] is None:
                    call.answers[index] = self._fall_back(now_s, item, "late")
        effects: list[RunBatch[Row] | AnswerCall[Answer]] = [self._answer(call) for call in late]
        self._waiting = deque(call for call in self._waiting if call.number in self._open)
        return effects

    def _answer(self, call: _Call[Item, Answer]) -> AnswerCall[Answer]:
        del self._open[call.number]
        return AnswerCall(call.number, tuple(answer for answer in call.answers if answer is not None))
