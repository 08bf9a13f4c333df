"""The reports of workers and gateways. An instant is told as `age_s`, the seconds from it to the sending of the report,
because clocks of two hosts cannot be compared."""

from dataclasses import dataclass, field

from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TagSource, TaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """The state of one engine. `kv_usage` is in [0, 1]; `step_s` is the recent mean time of an engine step.
    `prefill_tokens_per_s` and `decode_tokens_per_s` are measured over the last window.
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
    utilisation: float  # max(kv_usage, step_s / the TPOT SLO that is worth keeping)
    busy: float  # share of time in which the engine had work; shown only, no controller reads it
    b_saturated: int = 0  # of the worker's B_token: -1 at b_min, +1 at b_max, 0 between
    suspected: bool = False  # it has left a run without a token for too long, and given none since
    time_used: float = 0.0  # share of a step's time for sequences that what runs is expected to take; 0: no limit
    asleep: bool = field(default=False, repr=False)  # it is up, and by its own metrics somebody has put it to sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestQueued:
    """A request that a worker took in, told once its tags have come or are overdue. `waits`: it is not granted yet."""

    request_id: str
    tenant: str
    task: TaskType
    prompt_tokens: int
    predicted_output_tokens: float
    age_s: float
    predicted_output_tokens_p90: float = 0.0
    tpot_slo_s: float = 0.0  # 0: not told
    needed_tpot_s: float = 0.0  # the time per token that keeps its SLO, also one of the whole answer; 0: not told
    waits: bool = True


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
class SplitLegs:
    """The legs of a request of which another engine computed the prompt. Times are in s since its grant; None: it did
    not come so far, or nobody saw it."""

    prefill_engine: str
    computed_s: float | None  # until the prompt was computed
    first_s: float | None  # until the first token


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFinished:
    """A request that ended at a worker. `censored` is true if it did not end by itself, so that its output length is
    only a lower bound of what it would have been."""

    request_id: str
    tenant: str
    task: TaskType
    engine: str
    outcome: Outcome
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens_p90: float
    upper_output_tokens: float  # the fence's l_upper it was admitted with
    predictor: str  # Tags.version by which it was admitted; empty if it never was
    run_s: float  # since its grant
    prefill_s: float  # dispatch to first token
    tpot_s: float
    tpot_slo_s: float
    censored: bool
    age_s: float
    engine_wait_s: float = 0.0  # of prefill_s, what the engine spent on the prompts that it had before, as estimated
    kind: EngineKind = UNKNOWN_KIND  # of the engine
    legs: SplitLegs | None = field(default=None, repr=False)  # None: one engine served it

    @property
    def has_tpot(self) -> bool:
        """Whether `tpot_s` was measured: it is 0 for one token, and for an answer that was not streamed."""
        return self.output_tokens > 1 and self.tpot_s > 0.0

    @property
    def own_prefill_s(self) -> float:
        """The seconds to the first token that are the request's own: a prediction knows nothing of other prompts, and
        one that was corrected by all of the time would call each prompt as long as the queue in the engine."""
        return self.prefill_s - self.engine_wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRunning:
    """A request that runs on an engine; its output so far is a lower bound of its output length."""

    request_id: str
    engine: str
    prompt_tokens: int
    output_tokens: int  # so far
    predicted_output_tokens_p90: float
    upper_output_tokens: float  # the fence's l_upper it was admitted with
    predictor: str  # Tags.version by which it was admitted
    run_s: float  # since its grant
    tenant: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTelemetry:
    """A worker's report, every 100 ms or 256 events. `running` lists every request in flight once a second and is empty
    in between."""

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
    queued_asleep: int = field(default=0, repr=False)  # those queued that only sleeping engines could take


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOffered:
    """A request as the gateway received it, without its text. `slo` is the one that the client or the tenant stated, or
    a default; None: it is not told. `job` is the id of the job that it was found to belong to; empty: none."""

    request_id: str
    tenant: str
    prompt_tokens: int
    age_s: float
    weight: float = 1.0  # the tenant's share weight
    model: str = ""
    job: str = ""
    max_tokens: int | None = None
    stream: bool = True
    slo: Slo | None = None
    slo_stated: bool = False
    priority: int = 0
    importance: float = 0.75
    relegate: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettled:
    """A settlement as the gateway reports it. Latencies are as the client saw them, in s; None if the request never got
    that far. `withdrawn_s`: how long after its arrival its client left, None if it did not. `tagged_by` is what made
    the tags; None: no tags came, and the prediction is the gateway's guess. `promised`: it was refused before, and came
    back at the time that was promised."""

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
    predicted_output_tokens_p90: float = 0.0
    confidence: float = 0.0  # that of the task type
    tagged_by: TagSource | None = None
    promised: bool = False
    withdrawn_s: float | None = None


@dataclass(frozen=True, slots=True)
class GatewayTelemetry:
    """A gateway's report for one pool, every 100 ms or 256 events. A refused request is among `settled`, with the
    outcome of its refusal."""

    gateway: str
    pool: str
    offered: tuple[RequestOffered, ...]
    settled: tuple[RequestSettled, ...]
