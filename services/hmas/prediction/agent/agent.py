"""The prediction agent, Phi_pred (H-MAS §3.2): it predicts service times of requests, corrected per worker."""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked, WorkerReported
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost
from hmas.contracts.telemetry import RequestFinished
from hmas.laws.batching import BatchLimits, BatchQueue
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
    max_queued: int = 4096  # queries; a call that would exceed it is answered by the fallback at once
    max_followed: int = 65_536  # requests whose end is awaited, so that the correction learns from it
    max_workers: int = 1024


class PredictionAgent:
    """Predicts the costs of requests by a cost model, corrected by what their workers measured. `fallback` answers at
    once in the place of a model that is late, fails or returns nonsense.

    `fallbacks` counts the fallback's answers by reason. The agent needs a `TimerTicked` every few milliseconds while a
    call is open.
    """

    def __init__(self, config: PredictionConfig, fallback: CostModel) -> None:
        self._config = config
        self._fallback = fallback
        self._batches: BatchQueue[PredictItem, CostQuery, Cost, Cost] = BatchQueue(
            BatchLimits(config.max_batch, config.max_queued, split=False),
            row=lambda item: item.query,
            accept=lambda _, item, cost: self._corrected(item, cost),
            fall_back=self._fall_back,
        )
        self._measured: OrderedDict[str, MeasuredWorker] = OrderedDict()
        self._followed: OrderedDict[str, tuple[PredictItem, Cost]] = OrderedDict()  # with the uncorrected cost
        self.fallbacks: Counter[str] = Counter()

    def step(self, now_s: float, event: PredictionEvent) -> list[PredictionEffect]:
        match event:
            case BatchReturned(batch, costs) if not all(map(_valid, costs)):
                return self._batches.step(now_s, BatchReturned(batch, ()))  # one invalid cost discredits the batch
            case WorkerReported(telemetry):
                for finished in telemetry.finished:
                    self._learn(finished)
                return []
            case CallReceived() | BatchReturned() | BatchFailed() | TimerTicked():
                return self._batches.step(now_s, event)
            case _:
                assert_never(event)

    def scale(self, worker: str) -> tuple[float, float]:
        """Returns the factors on the model's prefill time and TPOT for a worker, (1, 1) for an unknown one."""
        measured = self._measured.get(worker)
        return (measured.ttft.factor, measured.tpot.factor) if measured is not None else (1.0, 1.0)

    def _fall_back(self, _: float, item: PredictItem, reason: str) -> Cost:
        self.fallbacks[reason] += 1
        (cost,) = self._fallback.predict([item.query])
        return self._corrected(item, cost)

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
        """Learns from a finished request how its times compare with the uncorrected prediction. Corrections of
        corrected predictions would swing, because hundreds of requests are under way between a correction and its
        effect.
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
        measured.learn(item.query.prompt_tokens, item.query.running, cost, Cost(finished.own_prefill_s, tpot_s))


def _valid(cost: Cost) -> bool:
    return isfinite(cost.ttft_s) and isfinite(cost.tpot_s) and cost.ttft_s >= 0.0 and cost.tpot_s >= 0.0
