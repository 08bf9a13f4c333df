from hmas.wire.v1 import control_pb2 as _control_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Group(_message.Message):
    __slots__ = ("type", "count")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    type: str
    count: int
    def __init__(self, type: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PoolPlan(_message.Message):
    __slots__ = ("pool", "groups", "split")
    POOL_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    split: _control_pb2.Split
    def __init__(self, pool: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., split: _Optional[_Union[_control_pb2.Split, _Mapping]] = ...) -> None: ...

class PlanPin(_message.Message):
    __slots__ = ("plans", "by")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[PoolPlan]
    by: str
    def __init__(self, plans: _Optional[_Iterable[_Union[PoolPlan, _Mapping]]] = ..., by: _Optional[str] = ...) -> None: ...

class PlanStep(_message.Message):
    __slots__ = ("kind", "pool", "type", "count_from", "count_to", "leaving", "acts_after_s", "lost_gpu_s", "reversible")
    KIND_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FROM_FIELD_NUMBER: _ClassVar[int]
    COUNT_TO_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    ACTS_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    LOST_GPU_S_FIELD_NUMBER: _ClassVar[int]
    REVERSIBLE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    pool: str
    type: str
    count_from: int
    count_to: int
    leaving: _containers.RepeatedCompositeFieldContainer[Group]
    acts_after_s: float
    lost_gpu_s: float
    reversible: bool
    def __init__(self, kind: _Optional[str] = ..., pool: _Optional[str] = ..., type: _Optional[str] = ..., count_from: _Optional[int] = ..., count_to: _Optional[int] = ..., leaving: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., acts_after_s: _Optional[float] = ..., lost_gpu_s: _Optional[float] = ..., reversible: _Optional[bool] = ...) -> None: ...

class ExpectedShare(_message.Message):
    __slots__ = ("pool", "share", "low", "high", "before")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    pool: str
    share: float
    low: float
    high: float
    before: float
    def __init__(self, pool: _Optional[str] = ..., share: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., before: _Optional[float] = ...) -> None: ...

class PlannedType(_message.Message):
    __slots__ = ("name", "model", "hardware", "gpus")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    hardware: str
    gpus: int
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., hardware: _Optional[str] = ..., gpus: _Optional[int] = ...) -> None: ...

class PlanDecision(_message.Message):
    __slots__ = ("plans", "expected", "bound", "steps", "ordered", "epoch", "seq", "valid_for_s", "reason", "selector", "acted_age_s", "acts", "before", "types")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    VALID_FOR_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SELECTOR_FIELD_NUMBER: _ClassVar[int]
    ACTED_AGE_S_FIELD_NUMBER: _ClassVar[int]
    ACTS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[PoolPlan]
    expected: _containers.RepeatedCompositeFieldContainer[ExpectedShare]
    bound: float
    steps: _containers.RepeatedCompositeFieldContainer[PlanStep]
    ordered: _containers.RepeatedCompositeFieldContainer[Group]
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str
    acted_age_s: _containers.RepeatedScalarFieldContainer[float]
    acts: str
    before: _containers.RepeatedCompositeFieldContainer[PoolPlan]
    types: _containers.RepeatedCompositeFieldContainer[PlannedType]
    def __init__(self, plans: _Optional[_Iterable[_Union[PoolPlan, _Mapping]]] = ..., expected: _Optional[_Iterable[_Union[ExpectedShare, _Mapping]]] = ..., bound: _Optional[float] = ..., steps: _Optional[_Iterable[_Union[PlanStep, _Mapping]]] = ..., ordered: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., epoch: _Optional[int] = ..., seq: _Optional[int] = ..., valid_for_s: _Optional[float] = ..., reason: _Optional[str] = ..., selector: _Optional[str] = ..., acted_age_s: _Optional[_Iterable[float]] = ..., acts: _Optional[str] = ..., before: _Optional[_Iterable[_Union[PoolPlan, _Mapping]]] = ..., types: _Optional[_Iterable[_Union[PlannedType, _Mapping]]] = ...) -> None: ...
