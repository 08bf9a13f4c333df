from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EngineSample(_message.Message):
    __slots__ = ("engine", "up", "running", "waiting", "kv_usage", "kv_capacity_tokens", "preemptions_total", "step_s", "prefill_tokens_per_s", "decode_tokens_per_s", "n_run", "b_token", "utilisation", "busy", "b_saturated", "suspected", "time_used", "asleep")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    DECODE_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    N_RUN_FIELD_NUMBER: _ClassVar[int]
    B_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    B_SATURATED_FIELD_NUMBER: _ClassVar[int]
    SUSPECTED_FIELD_NUMBER: _ClassVar[int]
    TIME_USED_FIELD_NUMBER: _ClassVar[int]
    ASLEEP_FIELD_NUMBER: _ClassVar[int]
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
    n_run: int
    b_token: int
    utilisation: float
    busy: float
    b_saturated: int
    suspected: bool
    time_used: float
    asleep: bool
    def __init__(self, engine: _Optional[str] = ..., up: _Optional[bool] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_usage: _Optional[float] = ..., kv_capacity_tokens: _Optional[int] = ..., preemptions_total: _Optional[int] = ..., step_s: _Optional[float] = ..., prefill_tokens_per_s: _Optional[float] = ..., decode_tokens_per_s: _Optional[float] = ..., n_run: _Optional[int] = ..., b_token: _Optional[int] = ..., utilisation: _Optional[float] = ..., busy: _Optional[float] = ..., b_saturated: _Optional[int] = ..., suspected: _Optional[bool] = ..., time_used: _Optional[float] = ..., asleep: _Optional[bool] = ...) -> None: ...

class RequestQueued(_message.Message):
    __slots__ = ("request_id", "tenant", "task", "prompt_tokens", "predicted_output_tokens", "age_s", "predicted_output_tokens_p90", "tpot_slo_s", "waits", "needed_tpot_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    TPOT_SLO_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    NEEDED_TPOT_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    task: str
    prompt_tokens: int
    predicted_output_tokens: float
    age_s: float
    predicted_output_tokens_p90: float
    tpot_slo_s: float
    waits: bool
    needed_tpot_s: float
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., task: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., predicted_output_tokens: _Optional[float] = ..., age_s: _Optional[float] = ..., predicted_output_tokens_p90: _Optional[float] = ..., tpot_slo_s: _Optional[float] = ..., waits: _Optional[bool] = ..., needed_tpot_s: _Optional[float] = ...) -> None: ...

class RequestDispatched(_message.Message):
    __slots__ = ("request_id", "tenant", "engine", "waited_s", "age_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    engine: str
    waited_s: float
    age_s: float
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., engine: _Optional[str] = ..., waited_s: _Optional[float] = ..., age_s: _Optional[float] = ...) -> None: ...

class FirstTokenSeen(_message.Message):
    __slots__ = ("request_id", "tenant", "task", "engine", "ttft_s", "prefill_s", "ttft_slo_s", "age_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    TTFT_SLO_S_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    task: str
    engine: str
    ttft_s: float
    prefill_s: float
    ttft_slo_s: float
    age_s: float
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., task: _Optional[str] = ..., engine: _Optional[str] = ..., ttft_s: _Optional[float] = ..., prefill_s: _Optional[float] = ..., ttft_slo_s: _Optional[float] = ..., age_s: _Optional[float] = ...) -> None: ...

class SplitLegs(_message.Message):
    __slots__ = ("prefill_engine", "computed_s", "first_s")
    PREFILL_ENGINE_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_S_FIELD_NUMBER: _ClassVar[int]
    prefill_engine: str
    computed_s: float
    first_s: float
    def __init__(self, prefill_engine: _Optional[str] = ..., computed_s: _Optional[float] = ..., first_s: _Optional[float] = ...) -> None: ...

class RequestFinished(_message.Message):
    __slots__ = ("request_id", "tenant", "task", "engine", "outcome", "prompt_tokens", "output_tokens", "upper_output_tokens", "predictor", "prefill_s", "tpot_s", "tpot_slo_s", "censored", "age_s", "predicted_output_tokens_p90", "run_s", "engine_wait_s", "kind", "legs")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UPPER_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTOR_FIELD_NUMBER: _ClassVar[int]
    PREFILL_S_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    TPOT_SLO_S_FIELD_NUMBER: _ClassVar[int]
    CENSORED_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    RUN_S_FIELD_NUMBER: _ClassVar[int]
    ENGINE_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    task: str
    engine: str
    outcome: str
    prompt_tokens: int
    output_tokens: int
    upper_output_tokens: float
    predictor: str
    prefill_s: float
    tpot_s: float
    tpot_slo_s: float
    censored: bool
    age_s: float
    predicted_output_tokens_p90: float
    run_s: float
    engine_wait_s: float
    kind: _types_pb2.EngineKind
    legs: SplitLegs
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., task: _Optional[str] = ..., engine: _Optional[str] = ..., outcome: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., upper_output_tokens: _Optional[float] = ..., predictor: _Optional[str] = ..., prefill_s: _Optional[float] = ..., tpot_s: _Optional[float] = ..., tpot_slo_s: _Optional[float] = ..., censored: _Optional[bool] = ..., age_s: _Optional[float] = ..., predicted_output_tokens_p90: _Optional[float] = ..., run_s: _Optional[float] = ..., engine_wait_s: _Optional[float] = ..., kind: _Optional[_Union[_types_pb2.EngineKind, _Mapping]] = ..., legs: _Optional[_Union[SplitLegs, _Mapping]] = ...) -> None: ...

class RequestRunning(_message.Message):
    __slots__ = ("engine", "prompt_tokens", "output_tokens", "upper_output_tokens", "predictor", "predicted_output_tokens_p90", "run_s", "request_id", "tenant")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    UPPER_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTOR_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    RUN_S_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    engine: str
    prompt_tokens: int
    output_tokens: int
    upper_output_tokens: float
    predictor: str
    predicted_output_tokens_p90: float
    run_s: float
    request_id: str
    tenant: str
    def __init__(self, engine: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., upper_output_tokens: _Optional[float] = ..., predictor: _Optional[str] = ..., predicted_output_tokens_p90: _Optional[float] = ..., run_s: _Optional[float] = ..., request_id: _Optional[str] = ..., tenant: _Optional[str] = ...) -> None: ...

class WorkerTelemetry(_message.Message):
    __slots__ = ("worker", "pool", "queued_count", "queued_tokens", "topology", "bypass", "control_expired", "engines", "queued", "dispatched", "first_tokens", "finished", "running", "queued_asleep")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    QUEUED_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    BYPASS_FIELD_NUMBER: _ClassVar[int]
    CONTROL_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    DISPATCHED_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_ASLEEP_FIELD_NUMBER: _ClassVar[int]
    worker: str
    pool: str
    queued_count: int
    queued_tokens: int
    topology: str
    bypass: bool
    control_expired: bool
    engines: _containers.RepeatedCompositeFieldContainer[EngineSample]
    queued: _containers.RepeatedCompositeFieldContainer[RequestQueued]
    dispatched: _containers.RepeatedCompositeFieldContainer[RequestDispatched]
    first_tokens: _containers.RepeatedCompositeFieldContainer[FirstTokenSeen]
    finished: _containers.RepeatedCompositeFieldContainer[RequestFinished]
    running: _containers.RepeatedCompositeFieldContainer[RequestRunning]
    queued_asleep: int
    def __init__(self, worker: _Optional[str] = ..., pool: _Optional[str] = ..., queued_count: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., topology: _Optional[str] = ..., bypass: _Optional[bool] = ..., control_expired: _Optional[bool] = ..., engines: _Optional[_Iterable[_Union[EngineSample, _Mapping]]] = ..., queued: _Optional[_Iterable[_Union[RequestQueued, _Mapping]]] = ..., dispatched: _Optional[_Iterable[_Union[RequestDispatched, _Mapping]]] = ..., first_tokens: _Optional[_Iterable[_Union[FirstTokenSeen, _Mapping]]] = ..., finished: _Optional[_Iterable[_Union[RequestFinished, _Mapping]]] = ..., running: _Optional[_Iterable[_Union[RequestRunning, _Mapping]]] = ..., queued_asleep: _Optional[int] = ...) -> None: ...

class RequestOffered(_message.Message):
    __slots__ = ("request_id", "tenant", "prompt_tokens", "age_s", "weight", "model", "job", "max_tokens", "stream", "slo", "slo_stated", "priority", "importance", "relegate")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    SLO_STATED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    RELEGATE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    prompt_tokens: int
    age_s: float
    weight: float
    model: str
    job: str
    max_tokens: int
    stream: bool
    slo: _types_pb2.Slo
    slo_stated: bool
    priority: int
    importance: float
    relegate: bool
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., age_s: _Optional[float] = ..., weight: _Optional[float] = ..., model: _Optional[str] = ..., job: _Optional[str] = ..., max_tokens: _Optional[int] = ..., stream: _Optional[bool] = ..., slo: _Optional[_Union[_types_pb2.Slo, _Mapping]] = ..., slo_stated: _Optional[bool] = ..., priority: _Optional[int] = ..., importance: _Optional[float] = ..., relegate: _Optional[bool] = ...) -> None: ...

class RequestSettled(_message.Message):
    __slots__ = ("request_id", "tenant", "task", "outcome", "slo", "prompt_tokens", "output_tokens", "predicted_output_tokens", "ttft_s", "tpot_s", "last_token_s", "relegated", "age_s", "predicted_output_tokens_p90", "confidence", "tagged_by", "promised", "withdrawn_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TTFT_S_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    LAST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    RELEGATED_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_P90_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    TAGGED_BY_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    task: str
    outcome: str
    slo: _types_pb2.Slo
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens: float
    ttft_s: float
    tpot_s: float
    last_token_s: float
    relegated: bool
    age_s: float
    predicted_output_tokens_p90: float
    confidence: float
    tagged_by: str
    promised: bool
    withdrawn_s: float
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., task: _Optional[str] = ..., outcome: _Optional[str] = ..., slo: _Optional[_Union[_types_pb2.Slo, _Mapping]] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., predicted_output_tokens: _Optional[float] = ..., ttft_s: _Optional[float] = ..., tpot_s: _Optional[float] = ..., last_token_s: _Optional[float] = ..., relegated: _Optional[bool] = ..., age_s: _Optional[float] = ..., predicted_output_tokens_p90: _Optional[float] = ..., confidence: _Optional[float] = ..., tagged_by: _Optional[str] = ..., promised: _Optional[bool] = ..., withdrawn_s: _Optional[float] = ...) -> None: ...

class GatewayTelemetry(_message.Message):
    __slots__ = ("gateway", "pool", "offered", "settled")
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    gateway: str
    pool: str
    offered: _containers.RepeatedCompositeFieldContainer[RequestOffered]
    settled: _containers.RepeatedCompositeFieldContainer[RequestSettled]
    def __init__(self, gateway: _Optional[str] = ..., pool: _Optional[str] = ..., offered: _Optional[_Iterable[_Union[RequestOffered, _Mapping]]] = ..., settled: _Optional[_Iterable[_Union[RequestSettled, _Mapping]]] = ...) -> None: ...
