"""What workers and gateways report. Instants travel as `age_s` before the batch was sent, never as clock readings."""

from dataclasses import dataclass

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One engine's state, scraped or reported. `kv_usage` in [0, 1]; `step_s` is the recent mean engine step.

    `prefill_tokens_per_s` and `decode_tokens_per_s` are measured over the last window; `service_per_s` finished
    requests per second.
    """

    engine: str
    up: bool
    running: int
    waiting: int
    kv_usage: float
    kv_capacity_tokens: int
    preemptions_total: int
    step_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    n_run: int  # in force
    b_token: int  # in force, after the inner loop
    utilisation: float  # max(kv_usage, step_s / the TPOT SLO that all but a tenth of what runs can do with)
    busy: float  # share of time the engine had work; shown, never regulated on
    b_saturated: int = 0  # inner loop: -1 at b_min, +1 at b_max, 0 between


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestQueued:
    request_id: str
    tenant: str
    task: TaskType
    prompt_tokens: int
    predicted_output_tokens: float
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDispatched:
    request_id: str
    tenant: str
    engine: str
    waited_s: float
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenSeen:
    request_id: str
    tenant: str
    task: TaskType
    engine: str
    ttft_s: float  # since arrival at the gateway
    prefill_s: float  # since dispatch
    ttft_slo_s: float
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished:
    """`censored` is true for a request that did not end by itself: its length is only a lower bound."""

    request_id: str
    tenant: str
    task: TaskType
    engine: str
    outcome: Outcome
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens: float
    upper_output_tokens: float  # the fence's l_upper it was admitted with
    predictor: str  # Tags.version
    prefill_s: float  # dispatch to first token
    tpot_s: float
    tpot_slo_s: float
    censored: bool
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRunning:
    """A request in flight on an engine: its length so far is a censored observation of its length."""

    engine: str
    prompt_tokens: int
    output_tokens: int  # so far
    predicted_output_tokens: float
    upper_output_tokens: float  # the fence's l_upper it was admitted with
    predictor: str  # Tags.version


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTelemetry:
    """Every 100 ms or 256 events. `running` once a second, every request in flight; empty in between."""

    worker: str
    pool: str
    queued_count: int
    queued_tokens: int
    topology: str
    bypass: bool
    control_expired: bool
    engines: tuple[EngineSample, ...]
    queued: tuple[RequestQueued, ...]
    dispatched: tuple[RequestDispatched, ...]
    first_tokens: tuple[FirstTokenSeen, ...]
    finished: tuple[RequestFinished, ...]
    running: tuple[RequestRunning, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOffered:
    request_id: str
    tenant: str
    prompt_tokens: int
    age_s: float
    weight: float = 1.0  # the tenant's share weight


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettled:
    """The settlement, by the gateway: latencies as the client saw them; None (absent) where never reached."""

    request_id: str
    tenant: str
    task: TaskType
    outcome: Outcome
    slo: Slo
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens: float
    ttft_s: float | None
    tpot_s: float | None
    last_token_s: float | None
    relegated: bool
    age_s: float


@dataclass(frozen=True, slots=True)
class GatewayTelemetry:
    """Every 100 ms or 256 events, per pool. A refused request is settled with its refusing outcome."""

    gateway: str
    pool: str
    offered: tuple[RequestOffered, ...]
    settled: tuple[RequestSettled, ...]
