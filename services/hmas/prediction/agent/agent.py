"""Phi_pred: service-time proxies of requests, corrected per worker (H-MAS §3.2)."""

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked, WorkerReported
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost
from hmas.contracts.telemetry import RequestFinished
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.agent.measured_worker import MeasuredWorker


@dataclass(frozen=True, slots=True)
class PredictItem:
    request_id: str
    worker: str
    query: CostQuery


PredictionEvent = CallReceived[PredictItem] | BatchReturned[Cost] | BatchFailed | WorkerReported | TimerTicked
PredictionEffect = RunBatch[CostQuery] | AnswerCall[Cost]


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    max_batch: int = 256  # queries; a call is never split
    max_queued: int = 4096  # queries; above it a call is answered by the fallback at once
    max_followed: int = 65_536  # requests whose end is awaited
    max_workers: int = 1024


@dataclass(frozen=True, slots=True)
class _Call:
    number: int
    items: tuple[PredictItem, ...]
    deadline_s: float


class PredictionAgent:
    """`fallback` must answer at once; it stands in for a model that is late, fails or answers nonsense.

    `fallbacks` counts its answers by reason. `TimerTicked` every few milliseconds while a call is open.
    """

    def __init__(self, config: PredictionConfig, fallback: CostModel) -> None:
        self._config = config
        self._fallback = fallback
        self._waiting: deque[_Call] = deque()
        self._running: list[_Call] = []
        self._answered: set[int] = set()  # running calls already answered at their deadline
        self._batch = 0
        self._measured: OrderedDict[str, MeasuredWorker] = OrderedDict()
        self._followed: OrderedDict[str, tuple[PredictItem, Cost]] = OrderedDict()  # with the uncorrected cost
        self.fallbacks: Counter[str] = Counter()

    def step(self, now_s: float, event: PredictionEvent) -> list[PredictionEffect]:
        match event:
            case CallReceived():
                return self._called(now_s, event)
            case BatchReturned(batch, costs):
                return self._returned(batch, costs, "invalid")
            case BatchFailed(batch, _):
                return self._returned(batch, (), "failed")
            case WorkerReported(telemetry):
                for finished in telemetry.finished:
                    self._learn(finished)
                return []
            case TimerTicked():
                return self._expire(now_s)
            case _:
                assert_never(event)

    def scale(self, worker: str) -> tuple[float, float]:
        """The worker's factors on TTFT and TPOT."""
        measured = self._measured.get(worker)
        return (measured.ttft.factor, measured.tpot.factor) if measured is not None else (1.0, 1.0)

    def _called(self, now_s: float, event: CallReceived[PredictItem]) -> list[PredictionEffect]:
        call = _Call(event.call, event.items, now_s + event.budget_s)
        if sum(len(c.items) for c in self._waiting) + len(call.items) > self._config.max_queued:
            return [self._fall_back(call, "queue_full")]
        self._waiting.append(call)
        return self._next_batch()

    def _next_batch(self) -> list[PredictionEffect]:
        if self._running or not self._waiting:
            return []
        size = 0
        while self._waiting and (not self._running or size + len(self._waiting[0].items) <= self._config.max_batch):
            call = self._waiting.popleft()
            self._running.append(call)
            size += len(call.items)
        self._batch += 1
        return [RunBatch(self._batch, tuple(item.query for call in self._running for item in call.items))]

    def _returned(self, batch: int, costs: Sequence[Cost], reason: str) -> list[PredictionEffect]:
        if batch != self._batch or not self._running:
            return []
        calls, self._running = self._running, []
        answered, self._answered = self._answered, set()
        valid = len(costs) == sum(len(call.items) for call in calls) and all(map(_valid, costs))
        effects: list[PredictionEffect] = []
        start = 0
        for call in calls:
            end = start + len(call.items)
            if call.number not in answered:
                effects.append(self._answer(call, costs[start:end]) if valid else self._fall_back(call, reason))
            start = end
        return [*effects, *self._next_batch()]

    def _expire(self, now_s: float) -> list[PredictionEffect]:
        late = [c for c in self._running if now_s >= c.deadline_s and c.number not in self._answered]
        self._answered.update(call.number for call in late)
        late += [c for c in self._waiting if now_s >= c.deadline_s]
        if late:
            self._waiting = deque(c for c in self._waiting if now_s < c.deadline_s)
        return [self._fall_back(call, "late") for call in late]

    def _fall_back(self, call: _Call, reason: str) -> AnswerCall[Cost]:
        self.fallbacks[reason] += len(call.items)
        return self._answer(call, self._fallback.predict([item.query for item in call.items]))

    def _answer(self, call: _Call, costs: Sequence[Cost]) -> AnswerCall[Cost]:
        return AnswerCall(call.number, tuple(map(self._corrected, call.items, costs)))

    def _corrected(self, item: PredictItem, cost: Cost) -> Cost:
        self._followed[item.request_id] = (item, cost)
        self._followed.move_to_end(item.request_id)
        if len(self._followed) > self._config.max_followed:
            self._followed.popitem(last=False)
        measured = self._measured.get(item.worker)
        if measured is None:
            return cost
        return measured.cost(item.query.prompt_tokens, item.query.running, cost)

    def _learn(self, finished: RequestFinished) -> None:
        """Against the uncorrected prediction: hundreds of requests are under way between a correction and its
        effect, and a correction of corrections would swing.
        """
        followed = self._followed.pop(finished.request_id, None)
        if followed is None or finished.outcome is not Outcome.FINISHED:
            return
        item, cost = followed
        measured = self._measured.setdefault(item.worker, MeasuredWorker())
        self._measured.move_to_end(item.worker)
        if len(self._measured) > self._config.max_workers:
            self._measured.popitem(last=False)
        tpot_s = finished.tpot_s if finished.output_tokens > 1 else 0.0
        measured.learn(item.query.prompt_tokens, item.query.running, cost, Cost(finished.prefill_s, tpot_s))


def _valid(cost: Cost) -> bool:
    return isfinite(cost.ttft_s) and isfinite(cost.tpot_s) and cost.ttft_s >= 0.0 and cost.tpot_s >= 0.0
