from dataclasses import replace

from prometheus_client import CollectorRegistry

from hmas.contracts.execution import Declined, Ended, Refusal, Stop
from hmas.contracts.outcome import Outcome
from hmas.worker.metrics import WorkerMetrics
from tests.builders.telemetry import request_finished, worker_telemetry

FINISHED = request_finished(
    tenant="acme", engine="e1", prompt_tokens=10, output_tokens=100, predicted_output_tokens_p90=80.0,
    upper_output_tokens=120.0, predictor="v", tpot_s=0.02, tpot_slo_s=0.05,
)  # fmt: skip


def test_fence_coverage_counts_what_ended_by_itself() -> None:
    registry = CollectorRegistry()
    within, beyond = FINISHED, replace(FINISHED, output_tokens=121)
    cancelled = replace(FINISHED, outcome=Outcome.CANCELLED, censored=True)
    telemetry = worker_telemetry(pool="p", finished=(within, within, beyond, cancelled))
    metrics = WorkerMetrics(registry)
    assert registry.get_sample_value("hmas_worker_control_expired") == 1  # before the first control
    metrics.observe(telemetry)
    assert registry.get_sample_value("hmas_worker_control_expired") == 0
    assert registry.get_sample_value("hmas_worker_fence_total", {"covered": "true"}) == 2
    assert registry.get_sample_value("hmas_worker_fence_total", {"covered": "false"}) == 1


def test_requests_count_once_by_how_they_ended() -> None:
    registry = CollectorRegistry()
    metrics = WorkerMetrics(registry)
    failed = Ended(request_id="a", grant=1, outcome=Outcome.ENGINE_ERROR, retryable=True)
    metrics.heard(failed)
    metrics.heard(replace(failed, retryable=False))
    metrics.heard(Declined("b", 2))
    metrics.sent(Stop("c", 3, "its engine went down"))
    metrics.sent(Refusal(request_id="d", attempt=1, outcome=Outcome.NO_ENGINE, message="none is up"))
    value = registry.get_sample_value
    assert value("hmas_worker_requests_total", {"outcome": "engine_error"}) == 1
    assert value("hmas_worker_requests_total", {"outcome": "no_engine"}) == 1
    names = ("hmas_worker_grants_declined_total", "hmas_worker_stops_total", "hmas_worker_grants_total")
    assert [value(name) for name in names] == [1, 1, 0]
