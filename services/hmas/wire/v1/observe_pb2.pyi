from hmas.wire.v1 import control_pb2 as _control_pb2
from hmas.wire.v1 import views_pb2 as _views_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ViewsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class ViewsReply(_message.Message):
    __slots__ = ("short", "long")
    SHORT_FIELD_NUMBER: _ClassVar[int]
    LONG_FIELD_NUMBER: _ClassVar[int]
    short: _containers.RepeatedCompositeFieldContainer[_views_pb2.VShort]
    long: _containers.RepeatedCompositeFieldContainer[_views_pb2.VLong]
    def __init__(self, short: _Optional[_Iterable[_Union[_views_pb2.VShort, _Mapping]]] = ..., long: _Optional[_Iterable[_Union[_views_pb2.VLong, _Mapping]]] = ...) -> None: ...

class DecisionsRequest(_message.Message):
    __slots__ = ("pool", "limit")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    pool: str
    limit: int
    def __init__(self, pool: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class DecisionsReply(_message.Message):
    __slots__ = ("current", "recent")
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    current: _containers.RepeatedCompositeFieldContainer[_control_pb2.TopologyDecision]
    recent: _containers.RepeatedCompositeFieldContainer[_control_pb2.AuditRecord]
    def __init__(self, current: _Optional[_Iterable[_Union[_control_pb2.TopologyDecision, _Mapping]]] = ..., recent: _Optional[_Iterable[_Union[_control_pb2.AuditRecord, _Mapping]]] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class WhyReply(_message.Message):
    __slots__ = ("found", "timeline_json")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_JSON_FIELD_NUMBER: _ClassVar[int]
    found: bool
    timeline_json: str
    def __init__(self, found: _Optional[bool] = ..., timeline_json: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("holder", "epoch")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    holder: str
    epoch: int
    def __init__(self, holder: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class EffectsRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class RecordedStep(_message.Message):
    __slots__ = ("age_s", "event_json", "effects_json")
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    EVENT_JSON_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_JSON_FIELD_NUMBER: _ClassVar[int]
    age_s: float
    event_json: str
    effects_json: str
    def __init__(self, age_s: _Optional[float] = ..., event_json: _Optional[str] = ..., effects_json: _Optional[str] = ...) -> None: ...

class EffectsReply(_message.Message):
    __slots__ = ("role", "name", "since_s", "steps", "left_out")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_S_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    role: str
    name: str
    since_s: float
    steps: _containers.RepeatedCompositeFieldContainer[RecordedStep]
    left_out: int
    def __init__(self, role: _Optional[str] = ..., name: _Optional[str] = ..., since_s: _Optional[float] = ..., steps: _Optional[_Iterable[_Union[RecordedStep, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...
