"""The prediction agent, Phi_pred (H-MAS §3.2): it predicts service times of requests, corrected for each kind of
engine of each worker."""

from collections import Counter
from dataclasses import dataclass
from math import isfinite
from typing import assert_never

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked, WorkerReported
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost
from hmas.contracts.telemetry import RequestFinished
from hmas.laws.batching import BatchLimits, BatchQueue
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.agent.measured_worker import MeasuredWorkers, measured_cost
from hmas.prediction.agent.open_requests import OpenRequests


@dataclass(frozen=True, slots=True)
class PredictItem:
    """A request on one kind of engine of a worker."""

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
    max_measured: int = 4096  # kinds of engines of workers whose measurements are kept


class PredictionAgent:
    """Predicts the costs of requests by a cost model, corrected by what their workers measured on engines of the same
    kind. `fallback` answers at once in the place of a model that is late, fails or returns nonsense.

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
        self._measured = MeasuredWorkers(config.max_measured)
        self._followed: OpenRequests[tuple[PredictItem, Cost]] = OpenRequests(config.max_followed)  # uncorrected
        self.fallbacks: Counter[str] = Counter()

    def step(self, now_s: float, event: PredictionEvent) -> list[PredictionEffect]:
        match event:
            case BatchReturned(batch, costs) if not all(map(_valid, costs)):
                return self._batches.step(now_s, BatchReturned(batch, ()))  # one invalid cost discredits the batch
            case WorkerReported(telemetry):
                for finished in telemetry.finished:
                    self._learn(telemetry.pool, finished)
                return []
            case CallReceived() | BatchReturned() | BatchFailed() | TimerTicked():
                return self._batches.step(now_s, event)
            case _:
                assert_never(event)

    def factors(self, worker: str) -> dict[EngineKind, tuple[float, float]]:
        """Returns the factors on the model's prefill time and TPOT for each kind of engine of which something was
        measured at the worker."""
        return self._measured.factors(worker)

    def _fall_back(self, _: float, item: PredictItem, reason: str) -> Cost:
        self.fallbacks[reason] += 1
        (cost,) = self._fallback.predict([item.query])
        return self._corrected(item, cost)

    def _corrected(self, item: PredictItem, cost: Cost) -> Cost:
        self._followed.add(item.request_id, item.query.kind, (item, cost))
        return self._measured.cost(item.worker, item.query, cost)

    def _learn(self, pool: str, finished: RequestFinished) -> None:
        """Learns from a finished request how its times compare with the uncorrected prediction. Corrections of
        corrected predictions would swing, because hundreds of requests are under way between a correction and its
        effect.
        """
        followed = self._followed.ended(pool, finished)
        if followed is not None:
            item, cost = followed
            self._measured.learn(item.worker, item.query, cost, measured_cost(finished))


def _valid(cost: Cost) -> bool:
    return isfinite(cost.ttft_s) and isfinite(cost.tpot_s) and cost.ttft_s >= 0.0 and cost.tpot_s >= 0.0
