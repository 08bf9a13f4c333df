from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopologyDecision(_message.Message):
    __slots__ = ("pool", "topology", "hints", "bypass", "epoch", "seq", "valid_for_s", "reason", "selector")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    BYPASS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    pool: str
    topology: str
    hints: _types_pb2.Hints
    bypass: bool
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str
    def __init__(self, pool: _Optional[str] = ..., topology: _Optional[str] = ..., hints: _Optional[_Union[_types_pb2.Hints, _Mapping]] = ..., bypass: _Optional[bool] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., valid_for_s: _Optional[float] = ..., reason: _Optional[str] = ..., selector: _Optional[str] = ...) -> None: ...

class LayoutDecision(_message.Message):
    __slots__ = ("pool", "layout", "epoch", "seq", "valid_for_s", "reason", "selector")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    pool: str
    layout: _types_pb2.Layout
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str
    def __init__(self, pool: _Optional[str] = ..., layout: _Optional[_Union[_types_pb2.Layout, _Mapping]] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., valid_for_s: _Optional[float] = ..., reason: _Optional[str] = ..., selector: _Optional[str] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("cuts_s", "engines")
    CUTS_S_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    cuts_s: _containers.RepeatedScalarFieldContainer[float]
    engines: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cuts_s: _Optional[_Iterable[float]] = ..., engines: _Optional[_Iterable[int]] = ...) -> None: ...

class StepTime(_message.Message):
    __slots__ = ("base_s", "sequence_s", "context_s")
    BASE_S_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_S_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_S_FIELD_NUMBER: _ClassVar[int]
    base_s: float
    sequence_s: float
    context_s: float
    def __init__(self, base_s: _Optional[float] = ..., sequence_s: _Optional[float] = ..., context_s: _Optional[float] = ...) -> None: ...

class EngineControl(_message.Message):
    __slots__ = ("engine", "n_run", "b_token", "b_min", "b_max", "gain_b", "u_low", "u_high", "step")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    N_RUN_FIELD_NUMBER: _ClassVar[int]
    B_TOKEN_FIELD_NUMBER: _ClassVar[int]
    B_MIN_FIELD_NUMBER: _ClassVar[int]
    B_MAX_FIELD_NUMBER: _ClassVar[int]
    GAIN_B_FIELD_NUMBER: _ClassVar[int]
    U_LOW_FIELD_NUMBER: _ClassVar[int]
    U_HIGH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    engine: str
    n_run: int
    b_token: int
    b_min: int
    b_max: int
    gain_b: float
    u_low: float
    u_high: float
    step: StepTime
    def __init__(self, engine: _Optional[str] = ..., n_run: _Optional[int] = ..., b_token: _Optional[int] = ..., b_min: _Optional[int] = ..., b_max: _Optional[int] = ..., gain_b: _Optional[float] = ..., u_low: _Optional[float] = ..., u_high: _Optional[float] = ..., step: _Optional[_Union[StepTime, _Mapping]] = ...) -> None: ...

class FenceBucket(_message.Message):
    __slots__ = ("prompt_upto", "factor", "shared")
    PROMPT_UPTO_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    prompt_upto: int
    factor: float
    shared: float
    def __init__(self, prompt_upto: _Optional[int] = ..., factor: _Optional[float] = ..., shared: _Optional[float] = ...) -> None: ...

class FenceTable(_message.Message):
    __slots__ = ("version", "buckets", "tenant")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    version: str
    buckets: _containers.RepeatedCompositeFieldContainer[FenceBucket]
    tenant: str
    def __init__(self, version: _Optional[str] = ..., buckets: _Optional[_Iterable[_Union[FenceBucket, _Mapping]]] = ..., tenant: _Optional[str] = ...) -> None: ...

class Fence(_message.Message):
    __slots__ = ("rolling_upper", "tables")
    ROLLING_UPPER_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    rolling_upper: float
    tables: _containers.RepeatedCompositeFieldContainer[FenceTable]
    def __init__(self, rolling_upper: _Optional[float] = ..., tables: _Optional[_Iterable[_Union[FenceTable, _Mapping]]] = ...) -> None: ...

class ControlTuple(_message.Message):
    __slots__ = ("worker", "engines", "fence", "epoch", "seq", "valid_for_s", "frozen")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    worker: str
    engines: _containers.RepeatedCompositeFieldContainer[EngineControl]
    fence: Fence
    epoch: int
    seq: int
    valid_for_s: float
    frozen: bool
    def __init__(self, worker: _Optional[str] = ..., engines: _Optional[_Iterable[_Union[EngineControl, _Mapping]]] = ..., fence: _Optional[_Union[Fence, _Mapping]] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., valid_for_s: _Optional[float] = ..., frozen: _Optional[bool] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("pool", "topology", "hints", "by", "split")
    POOL_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    HINTS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    topology: str
    hints: _types_pb2.Hints
    by: str
    split: Split
    def __init__(self, pool: _Optional[str] = ..., topology: _Optional[str] = ..., hints: _Optional[_Union[_types_pb2.Hints, _Mapping]] = ..., by: _Optional[str] = ..., split: _Optional[_Union[Split, _Mapping]] = ...) -> None: ...

class AuditRecord(_message.Message):
    __slots__ = ("source", "pool", "kind", "decision", "reason", "selector", "view_json", "epoch", "seq", "predicted_gain", "observed_gain")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    VIEW_JSON_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_GAIN_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_GAIN_FIELD_NUMBER: _ClassVar[int]
    source: str
    pool: str
    kind: str
    decision: str
    reason: str
    selector: str
    view_json: str
    epoch: int
    seq: int
    predicted_gain: float
    observed_gain: float
    def __init__(self, source: _Optional[str] = ..., pool: _Optional[str] = ..., kind: _Optional[str] = ..., decision: _Optional[str] = ..., reason: _Optional[str] = ..., selector: _Optional[str] = ..., view_json: _Optional[str] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., predicted_gain: _Optional[float] = ..., observed_gain: _Optional[float] = ...) -> None: ...

class TenantScheduled(_message.Message):
    __slots__ = ("tenant", "requests", "was", "scheduled")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    requests: int
    was: float
    scheduled: float
    def __init__(self, tenant: _Optional[str] = ..., requests: _Optional[int] = ..., was: _Optional[float] = ..., scheduled: _Optional[float] = ...) -> None: ...

class SchedulingGain(_message.Message):
    __slots__ = ("pool", "window_s", "requests", "was", "played", "scheduled", "low", "high", "engines", "topology", "abstains", "tenants")
    POOL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_S_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAS_FIELD_NUMBER: _ClassVar[int]
    PLAYED_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    ABSTAINS_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    pool: str
    window_s: float
    requests: int
    was: float
    played: float
    scheduled: float
    low: float
    high: float
    engines: int
    topology: str
    abstains: str
    tenants: _containers.RepeatedCompositeFieldContainer[TenantScheduled]
    def __init__(self, pool: _Optional[str] = ..., window_s: _Optional[float] = ..., requests: _Optional[int] = ..., was: _Optional[float] = ..., played: _Optional[float] = ..., scheduled: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., engines: _Optional[int] = ..., topology: _Optional[str] = ..., abstains: _Optional[str] = ..., tenants: _Optional[_Iterable[_Union[TenantScheduled, _Mapping]]] = ...) -> None: ...
