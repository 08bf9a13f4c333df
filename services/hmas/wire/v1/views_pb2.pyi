from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tail(_message.Message):
    __slots__ = ("count", "p50_s", "p95_s", "p99_s")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_S_FIELD_NUMBER: _ClassVar[int]
    P95_S_FIELD_NUMBER: _ClassVar[int]
    P99_S_FIELD_NUMBER: _ClassVar[int]
    count: int
    p50_s: float
    p95_s: float
    p99_s: float
    def __init__(self, count: _Optional[int] = ..., p50_s: _Optional[float] = ..., p95_s: _Optional[float] = ..., p99_s: _Optional[float] = ...) -> None: ...

class EngineView(_message.Message):
    __slots__ = ("worker", "engine", "up", "running", "waiting", "kv_usage", "utilisation", "step_s", "n_run", "b_token", "b_saturated", "goodput_tokens_per_s", "preemptions_per_s", "asleep")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    N_RUN_FIELD_NUMBER: _ClassVar[int]
    B_TOKEN_FIELD_NUMBER: _ClassVar[int]
    B_SATURATED_FIELD_NUMBER: _ClassVar[int]
    GOODPUT_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_PER_S_FIELD_NUMBER: _ClassVar[int]
    ASLEEP_FIELD_NUMBER: _ClassVar[int]
    worker: str
    engine: str
    up: bool
    running: int
    waiting: int
    kv_usage: float
    utilisation: float
    step_s: float
    n_run: int
    b_token: int
    b_saturated: int
    goodput_tokens_per_s: float
    preemptions_per_s: float
    asleep: bool
    def __init__(self, worker: _Optional[str] = ..., engine: _Optional[str] = ..., up: _Optional[bool] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_usage: _Optional[float] = ..., utilisation: _Optional[float] = ..., step_s: _Optional[float] = ..., n_run: _Optional[int] = ..., b_token: _Optional[int] = ..., b_saturated: _Optional[int] = ..., goodput_tokens_per_s: _Optional[float] = ..., preemptions_per_s: _Optional[float] = ..., asleep: _Optional[bool] = ...) -> None: ...

class VShort(_message.Message):
    __slots__ = ("pool", "window_s", "queued", "queued_tokens", "running", "kv_usage", "utilisation", "ttft", "tpot", "violation_rate", "ttft_violation_rate", "tpot_violation_rate", "arrival_rps", "settled_rps", "arriving_tokens_per_s", "served_tokens_per_s", "mismatch", "oldest_wait_s", "engines", "epoch", "seq", "valid_for_s", "kept_rps", "kept_violation_rate", "queued_asleep")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    TTFT_FIELD_NUMBER: _ClassVar[int]
    TPOT_FIELD_NUMBER: _ClassVar[int]
    VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    TTFT_VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    TPOT_VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_RPS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_RPS_FIELD_NUMBER: _ClassVar[int]
    ARRIVING_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    SERVED_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    KEPT_RPS_FIELD_NUMBER: _ClassVar[int]
    KEPT_VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    QUEUED_ASLEEP_FIELD_NUMBER: _ClassVar[int]
    pool: str
    window_s: float
    queued: int
    queued_tokens: int
    running: int
    kv_usage: float
    utilisation: float
    ttft: Tail
    tpot: Tail
    violation_rate: float
    ttft_violation_rate: float
    tpot_violation_rate: float
    arrival_rps: float
    settled_rps: float
    arriving_tokens_per_s: float
    served_tokens_per_s: float
    mismatch: float
    oldest_wait_s: float
    engines: _containers.RepeatedCompositeFieldContainer[EngineView]
    epoch: int
    seq: int
    valid_for_s: float
    kept_rps: float
    kept_violation_rate: float
    queued_asleep: int
    def __init__(self, pool: _Optional[str] = ..., window_s: _Optional[float] = ..., queued: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., running: _Optional[int] = ..., kv_usage: _Optional[float] = ..., utilisation: _Optional[float] = ..., ttft: _Optional[_Union[Tail, _Mapping]] = ..., tpot: _Optional[_Union[Tail, _Mapping]] = ..., violation_rate: _Optional[float] = ..., ttft_violation_rate: _Optional[float] = ..., tpot_violation_rate: _Optional[float] = ..., arrival_rps: _Optional[float] = ..., settled_rps: _Optional[float] = ..., arriving_tokens_per_s: _Optional[float] = ..., served_tokens_per_s: _Optional[float] = ..., mismatch: _Optional[float] = ..., oldest_wait_s: _Optional[float] = ..., engines: _Optional[_Iterable[_Union[EngineView, _Mapping]]] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., valid_for_s: _Optional[float] = ..., kept_rps: _Optional[float] = ..., kept_violation_rate: _Optional[float] = ..., queued_asleep: _Optional[int] = ...) -> None: ...

class ShareView(_message.Message):
    __slots__ = ("name", "offered", "settled", "ok", "ttft_ok", "tpot_ok", "tokens_served", "weight")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    TTFT_OK_FIELD_NUMBER: _ClassVar[int]
    TPOT_OK_FIELD_NUMBER: _ClassVar[int]
    TOKENS_SERVED_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    name: str
    offered: int
    settled: int
    ok: int
    ttft_ok: int
    tpot_ok: int
    tokens_served: int
    weight: float
    def __init__(self, name: _Optional[str] = ..., offered: _Optional[int] = ..., settled: _Optional[int] = ..., ok: _Optional[int] = ..., ttft_ok: _Optional[int] = ..., tpot_ok: _Optional[int] = ..., tokens_served: _Optional[int] = ..., weight: _Optional[float] = ...) -> None: ...

class DemandView(_message.Message):
    __slots__ = ("tpot_slo_s", "rps", "requests", "prompt_tokens", "output_tokens", "context_tokens")
    TPOT_SLO_S_FIELD_NUMBER: _ClassVar[int]
    RPS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tpot_slo_s: float
    rps: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    context_tokens: float
    def __init__(self, tpot_slo_s: _Optional[float] = ..., rps: _Optional[float] = ..., requests: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., context_tokens: _Optional[float] = ...) -> None: ...

class PaceView(_message.Message):
    __slots__ = ("worker", "engine", "base_s", "sequence_s", "context_s", "prompt_s", "observations")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    BASE_S_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_S_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_S_FIELD_NUMBER: _ClassVar[int]
    PROMPT_S_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    engine: str
    base_s: float
    sequence_s: float
    context_s: float
    prompt_s: float
    observations: int
    def __init__(self, worker: _Optional[str] = ..., engine: _Optional[str] = ..., base_s: _Optional[float] = ..., sequence_s: _Optional[float] = ..., context_s: _Optional[float] = ..., prompt_s: _Optional[float] = ..., observations: _Optional[int] = ...) -> None: ...

class VLong(_message.Message):
    __slots__ = ("pool", "window_s", "arrival_rps", "arrival_cv", "burstiness", "prompt_mean", "prompt_cv", "output_mean", "output_cv", "predicted_total_cv", "prompt_histogram", "output_histogram", "tasks", "tenants", "jain_index", "goodput", "goodput_rate", "esg_rate", "violation_rate", "ttft_violation_rate", "tpot_violation_rate", "ttft", "tpot", "queued", "mismatch_mean", "mismatch_p95", "utilisation", "trend_arrival", "trend_violation", "trend_prompt", "epoch", "seq", "demands", "paces", "stated_share")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_RPS_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_CV_FIELD_NUMBER: _ClassVar[int]
    BURSTINESS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_MEAN_FIELD_NUMBER: _ClassVar[int]
    PROMPT_CV_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_MEAN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_CV_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_TOTAL_CV_FIELD_NUMBER: _ClassVar[int]
    PROMPT_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_HISTOGRAM_FIELD_NUMBER: _ClassVar[int]
    TASKS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    JAIN_INDEX_FIELD_NUMBER: _ClassVar[int]
    GOODPUT_FIELD_NUMBER: _ClassVar[int]
    GOODPUT_RATE_FIELD_NUMBER: _ClassVar[int]
    ESG_RATE_FIELD_NUMBER: _ClassVar[int]
    VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    TTFT_VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    TPOT_VIOLATION_RATE_FIELD_NUMBER: _ClassVar[int]
    TTFT_FIELD_NUMBER: _ClassVar[int]
    TPOT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_MEAN_FIELD_NUMBER: _ClassVar[int]
    MISMATCH_P95_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    TREND_ARRIVAL_FIELD_NUMBER: _ClassVar[int]
    TREND_VIOLATION_FIELD_NUMBER: _ClassVar[int]
    TREND_PROMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    PACES_FIELD_NUMBER: _ClassVar[int]
    STATED_SHARE_FIELD_NUMBER: _ClassVar[int]
    pool: str
    window_s: float
    arrival_rps: float
    arrival_cv: float
    burstiness: float
    prompt_mean: float
    prompt_cv: float
    output_mean: float
    output_cv: float
    predicted_total_cv: float
    prompt_histogram: _containers.RepeatedScalarFieldContainer[int]
    output_histogram: _containers.RepeatedScalarFieldContainer[int]
    tasks: _containers.RepeatedCompositeFieldContainer[ShareView]
    tenants: _containers.RepeatedCompositeFieldContainer[ShareView]
    jain_index: float
    goodput: float
    goodput_rate: float
    esg_rate: float
    violation_rate: float
    ttft_violation_rate: float
    tpot_violation_rate: float
    ttft: Tail
    tpot: Tail
    queued: int
    mismatch_mean: float
    mismatch_p95: float
    utilisation: float
    trend_arrival: float
    trend_violation: float
    trend_prompt: float
    epoch: int
    seq: int
    demands: _containers.RepeatedCompositeFieldContainer[DemandView]
    paces: _containers.RepeatedCompositeFieldContainer[PaceView]
    stated_share: float
    def __init__(self, pool: _Optional[str] = ..., window_s: _Optional[float] = ..., arrival_rps: _Optional[float] = ..., arrival_cv: _Optional[float] = ..., burstiness: _Optional[float] = ..., prompt_mean: _Optional[float] = ..., prompt_cv: _Optional[float] = ..., output_mean: _Optional[float] = ..., output_cv: _Optional[float] = ..., predicted_total_cv: _Optional[float] = ..., prompt_histogram: _Optional[_Iterable[int]] = ..., output_histogram: _Optional[_Iterable[int]] = ..., tasks: _Optional[_Iterable[_Union[ShareView, _Mapping]]] = ..., tenants: _Optional[_Iterable[_Union[ShareView, _Mapping]]] = ..., jain_index: _Optional[float] = ..., goodput: _Optional[float] = ..., goodput_rate: _Optional[float] = ..., esg_rate: _Optional[float] = ..., violation_rate: _Optional[float] = ..., ttft_violation_rate: _Optional[float] = ..., tpot_violation_rate: _Optional[float] = ..., ttft: _Optional[_Union[Tail, _Mapping]] = ..., tpot: _Optional[_Union[Tail, _Mapping]] = ..., queued: _Optional[int] = ..., mismatch_mean: _Optional[float] = ..., mismatch_p95: _Optional[float] = ..., utilisation: _Optional[float] = ..., trend_arrival: _Optional[float] = ..., trend_violation: _Optional[float] = ..., trend_prompt: _Optional[float] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., demands: _Optional[_Iterable[_Union[DemandView, _Mapping]]] = ..., paces: _Optional[_Iterable[_Union[PaceView, _Mapping]]] = ..., stated_share: _Optional[float] = ...) -> None: ...
