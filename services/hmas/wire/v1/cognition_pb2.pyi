from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PerceiveRequest(_message.Message):
    __slots__ = ("request_id", "text", "prompt_tokens", "model", "tenant", "max_tokens", "slo", "slo_stated", "importance")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    SLO_STATED_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    text: str
    prompt_tokens: int
    model: str
    tenant: str
    max_tokens: int
    slo: _types_pb2.Slo
    slo_stated: bool
    importance: float
    def __init__(self, request_id: _Optional[str] = ..., text: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., max_tokens: _Optional[int] = ..., slo: _Optional[_Union[_types_pb2.Slo, _Mapping]] = ..., slo_stated: _Optional[bool] = ..., importance: _Optional[float] = ...) -> None: ...

class PerceiveBatch(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[PerceiveRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[PerceiveRequest, _Mapping]]] = ...) -> None: ...

class PerceiveReply(_message.Message):
    __slots__ = ("tags",)
    TAGS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedCompositeFieldContainer[_types_pb2.Tags]
    def __init__(self, tags: _Optional[_Iterable[_Union[_types_pb2.Tags, _Mapping]]] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("request_id", "prompt_tokens", "output_tokens", "model", "worker", "hardware", "running", "waiting", "kv_usage", "task")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    prompt_tokens: int
    output_tokens: float
    model: str
    worker: str
    hardware: str
    running: int
    waiting: int
    kv_usage: float
    task: str
    def __init__(self, request_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[float] = ..., model: _Optional[str] = ..., worker: _Optional[str] = ..., hardware: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., kv_usage: _Optional[float] = ..., task: _Optional[str] = ...) -> None: ...

class PredictBatch(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[PredictRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[PredictRequest, _Mapping]]] = ...) -> None: ...

class PredictReply(_message.Message):
    __slots__ = ("costs",)
    COSTS_FIELD_NUMBER: _ClassVar[int]
    costs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Cost]
    def __init__(self, costs: _Optional[_Iterable[_Union[_types_pb2.Cost, _Mapping]]] = ...) -> None: ...
