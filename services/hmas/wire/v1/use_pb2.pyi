from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TenantUse(_message.Message):
    __slots__ = ("tenant", "requests", "tokens", "requests_left", "tokens_left", "in_flight", "waiting", "most_in_flight", "most_waiting", "demand")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_LEFT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_LEFT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MOST_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    MOST_WAITING_FIELD_NUMBER: _ClassVar[int]
    DEMAND_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    requests: float
    tokens: float
    requests_left: float
    tokens_left: float
    in_flight: int
    waiting: int
    most_in_flight: int
    most_waiting: int
    demand: float
    def __init__(self, tenant: _Optional[str] = ..., requests: _Optional[float] = ..., tokens: _Optional[float] = ..., requests_left: _Optional[float] = ..., tokens_left: _Optional[float] = ..., in_flight: _Optional[int] = ..., waiting: _Optional[int] = ..., most_in_flight: _Optional[int] = ..., most_waiting: _Optional[int] = ..., demand: _Optional[float] = ...) -> None: ...

class ToldPromise(_message.Message):
    __slots__ = ("content", "due_s")
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    DUE_S_FIELD_NUMBER: _ClassVar[int]
    content: str
    due_s: float
    def __init__(self, content: _Optional[str] = ..., due_s: _Optional[float] = ...) -> None: ...

class HeldPrefixes(_message.Message):
    __slots__ = ("worker", "nodes", "tokens")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    nodes: _containers.RepeatedScalarFieldContainer[int]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, worker: _Optional[str] = ..., nodes: _Optional[_Iterable[int]] = ..., tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class ToldStage(_message.Message):
    __slots__ = ("job", "node", "thread", "turn", "stages", "request_id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    THREAD_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job: str
    node: int
    thread: int
    turn: int
    stages: int
    request_id: str
    def __init__(self, job: _Optional[str] = ..., node: _Optional[int] = ..., thread: _Optional[int] = ..., turn: _Optional[int] = ..., stages: _Optional[int] = ..., request_id: _Optional[str] = ...) -> None: ...

class UseReport(_message.Message):
    __slots__ = ("gateway", "incarnation", "uses", "promised", "redeemed", "held", "stages")
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    REDEEMED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    gateway: str
    incarnation: str
    uses: _containers.RepeatedCompositeFieldContainer[TenantUse]
    promised: _containers.RepeatedCompositeFieldContainer[ToldPromise]
    redeemed: _containers.RepeatedScalarFieldContainer[str]
    held: _containers.RepeatedCompositeFieldContainer[HeldPrefixes]
    stages: _containers.RepeatedCompositeFieldContainer[ToldStage]
    def __init__(self, gateway: _Optional[str] = ..., incarnation: _Optional[str] = ..., uses: _Optional[_Iterable[_Union[TenantUse, _Mapping]]] = ..., promised: _Optional[_Iterable[_Union[ToldPromise, _Mapping]]] = ..., redeemed: _Optional[_Iterable[str]] = ..., held: _Optional[_Iterable[_Union[HeldPrefixes, _Mapping]]] = ..., stages: _Optional[_Iterable[_Union[ToldStage, _Mapping]]] = ...) -> None: ...
