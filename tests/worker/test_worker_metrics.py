from dataclasses import replace

from prometheus_client import CollectorRegistry

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.worker.metrics import WorkerMetrics

FINISHED = RequestFinished(
    "r", "acme", TaskType.QA, "e1", Outcome.FINISHED, 10, 100, 80.0, 120.0, "v", 0.1, 0.02, 0.05, False, 0.0
)


def test_fence_coverage_counts_what_ended_by_itself() -> None:
    registry = CollectorRegistry()
    within, beyond = FINISHED, replace(FINISHED, output_tokens=121)
    cancelled = replace(FINISHED, outcome=Outcome.CANCELLED, censored=True)
    telemetry = WorkerTelemetry(
        "w", "p", 0, 0, "sjf", False, False, (), (), (), (), (within, within, beyond, cancelled)
    )
    WorkerMetrics(registry).observe(telemetry)
    assert registry.get_sample_value("hmas_worker_fence_total", {"covered": "true"}) == 2
    assert registry.get_sample_value("hmas_worker_fence_total", {"covered": "false"}) == 1
