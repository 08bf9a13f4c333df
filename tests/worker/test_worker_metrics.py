from dataclasses import replace

from prometheus_client import CollectorRegistry

from hmas.contracts.execution import Declined, Ended, Refusal, Stop
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.worker.metrics import WorkerMetrics

FINISHED = RequestFinished(
    request_id="r",
    tenant="acme",
    task=TaskType.QA,
    engine="e1",
    outcome=Outcome.FINISHED,
    prompt_tokens=10,
    output_tokens=100,
    predicted_output_tokens_p90=80.0,
    upper_output_tokens=120.0,
    predictor="v",
    run_s=1.0,
    prefill_s=0.1,
    tpot_s=0.02,
    tpot_slo_s=0.05,
    censored=False,
    age_s=0.0,
)


def test_fence_coverage_counts_what_ended_by_itself() -> None:
    registry = CollectorRegistry()
    within, beyond = FINISHED, replace(FINISHED, output_tokens=121)
    cancelled = replace(FINISHED, outcome=Outcome.CANCELLED, censored=True)
    telemetry = WorkerTelemetry(
        worker="w",
        pool="p",
        queued_count=0,
        queued_tokens=0,
        topology="sjf",
        bypass=False,
        control_expired=False,
        engines=(),
        queued=(),
        dispatched=(),
        first_tokens=(),
        finished=(within, within, beyond, cancelled),
    )
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
