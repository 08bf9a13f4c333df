"""Plain reports of workers and gateways, in which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import (
    EngineSample,
    FirstTokenSeen,
    RequestFinished,
    RequestQueued,
    RequestSettled,
    WorkerTelemetry,
)

SAMPLE = EngineSample(
    engine="e", up=True, running=4, waiting=0, kv_usage=0.1, kv_capacity_tokens=10**6, preemptions_total=0, step_s=0.03,
    prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0, n_run=64, b_token=65, utilisation=0.5, busy=1.0,
)  # fmt: skip
QUEUED = RequestQueued(
    request_id="r", tenant="a", task=TaskType.QA, prompt_tokens=100, predicted_output_tokens=60.0, age_s=0.0
)
FIRST_TOKEN = FirstTokenSeen(
    request_id="r", tenant="a", task=TaskType.QA, engine="e", ttft_s=0.5, prefill_s=0.1, ttft_slo_s=4.0, age_s=0.0
)
FINISHED = RequestFinished(
    request_id="r", tenant="a", task=TaskType.QA, engine="e", outcome=Outcome.FINISHED, prompt_tokens=100,
    output_tokens=50, predicted_output_tokens_p90=60.0, upper_output_tokens=80.0, predictor="v1", run_s=1.0,
    prefill_s=0.1, tpot_s=0.05, tpot_slo_s=0.07, censored=False, age_s=0.0,
)  # fmt: skip
SETTLED = RequestSettled(
    request_id="r", tenant="a", task=TaskType.QA, outcome=Outcome.FINISHED, slo=Slo(4.0, 0.07), prompt_tokens=100,
    output_tokens=50, predicted_output_tokens=60.0, ttft_s=1.0, tpot_s=0.05, last_token_s=3.45, relegated=False,
    age_s=0.0,
)  # fmt: skip
TELEMETRY = WorkerTelemetry(
    worker="w", pool="m", queued_count=0, queued_tokens=0, topology="sjf", bypass=False, control_expired=False,
    engines=(), queued=(), dispatched=(), first_tokens=(), finished=(),
)  # fmt: skip


def engine_sample(**changes: Any) -> EngineSample:
    """An engine half as busy as it may be, with four requests."""
    return replace(SAMPLE, **changes)


def request_queued(request_id: str = "r", **changes: Any) -> RequestQueued:
    return replace(QUEUED, request_id=request_id, **changes)


def first_token_seen(request_id: str = "r", **changes: Any) -> FirstTokenSeen:
    return replace(FIRST_TOKEN, request_id=request_id, **changes)


def request_finished(request_id: str = "r", **changes: Any) -> RequestFinished:
    """A question that was answered as it was predicted."""
    return replace(FINISHED, request_id=request_id, **changes)


def request_settled(request_id: str = "r", **changes: Any) -> RequestSettled:
    """The same, as its gateway tells it."""
    return replace(SETTLED, request_id=request_id, **changes)


def worker_telemetry(worker: str = "w", **changes: Any) -> WorkerTelemetry:
    """The report of a worker that has no engine and nothing to do."""
    return replace(TELEMETRY, worker=worker, **changes)
