"""Prediction's shell: its agent, and a cost model in a thread of its own."""

from functools import partial
from itertools import product

from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.request import Cost, TaskType
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.prediction.agent.agent import PredictionAgent, PredictItem
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.agent.linear import LinearCostModel
from hmas.prediction.answers import COSTS, Choosing, PredictionErrors, StandIn, kind
from hmas.prediction.metrics import PredictionMetrics
from hmas.runtime.batching import BatchingShell
from hmas.runtime.recorder import Recorder

WARM_UP = CostQuery(
    prompt_tokens=100, output_tokens=100.0, model="llama-13b", hardware="A100", running=1, waiting=0, kv_usage=0.0,
    task=TaskType.UNKNOWN,
)  # fmt: skip


class PredictionShell(BatchingShell[PredictItem, CostQuery, Cost, Cost]):
    """Steps prediction's agent and runs its batches on the cost model. `budget_s` is the longest time that a call may
    take. `stand_in` is the agent's fallback."""

    def __init__(
        self,
        agent: PredictionAgent,
        model: CostModel,
        stand_in: StandIn,
        budget_s: float,
        metrics: PredictionMetrics,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(agent, model.predict, budget_s, metrics.batch_seconds, metrics.fallbacks, recorder)
        self._predictor = agent
        self._metrics = metrics
        self._stand_in = stand_in
        self._model_of = model
        physical = model.untrained if isinstance(model, Choosing) else LinearCostModel(stand_in.profiles)
        self._errors = PredictionErrors(physical)
        for name, cost in product({kind(each.version) for each in (model, physical)}, COSTS):
            metrics.show_error(name, cost, partial(self._errors.median, name, cost))

    async def answers(self, items: tuple[PredictItem, ...], remaining_s: float | None) -> tuple[Cost, ...]:
        costs = await super().answers(items, remaining_s)
        for item, cost in zip(items, costs, strict=True):
            by = kind(self._who(item.query).version)
            self._metrics.answers.labels(by).inc()
            self._errors.predicted(item, cost, by)
        return costs

    def _who(self, query: CostQuery) -> CostModel:
        """Returns the model that answered a query."""
        if self._stand_in.answered(query):
            return self._stand_in
        return self._model_of.chosen(query) if isinstance(self._model_of, Choosing) else self._model_of

    def hear(self, telemetry: WorkerTelemetry) -> None:
        """Passes a worker's telemetry to the agent if it tells of finished requests, which most telemetry does not."""
        for finished in telemetry.finished:
            self._errors.finished(telemetry.pool, finished)
        if telemetry.finished:
            self.post(WorkerReported(telemetry))
            for kind, factors in self._predictor.factors(telemetry.worker).items():
                self._metrics.show_scale(telemetry.worker, kind, *factors)
