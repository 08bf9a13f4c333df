"""Prediction's shell: its agent, and a cost model in a thread of its own."""

from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.request import Cost, TaskType
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.prediction.agent.agent import PredictionAgent, PredictItem
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.metrics import PredictionMetrics
from hmas.runtime.batching import BatchingShell
from hmas.runtime.recorder import Recorder

WARM_UP = CostQuery(
    prompt_tokens=100, output_tokens=100.0, model="llama-13b", hardware="A100", running=1, waiting=0, kv_usage=0.0,
    task=TaskType.UNKNOWN,
)  # fmt: skip


class PredictionShell(BatchingShell[PredictItem, CostQuery, Cost, Cost]):
    """Steps prediction's agent and runs its batches on the cost model. `budget_s` is the longest time that a call may
    take."""

    def __init__(
        self,
        agent: PredictionAgent,
        model: CostModel,
        budget_s: float,
        metrics: PredictionMetrics,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__(agent, model.predict, budget_s, metrics.batch_seconds, metrics.fallbacks, recorder)
        self._predictor = agent
        self._metrics = metrics

    def hear(self, telemetry: WorkerTelemetry) -> None:
        """Passes a worker's telemetry to the agent if it tells of finished requests, which most telemetry does not."""
        if telemetry.finished:
            self.post(WorkerReported(telemetry))
            self._metrics.show_scale(telemetry.worker, *self._predictor.scale(telemetry.worker))
