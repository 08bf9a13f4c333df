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
    __slots__ = ("current", "recent", "layouts")
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    current: _containers.RepeatedCompositeFieldContainer[_control_pb2.TopologyDecision]
    recent: _containers.RepeatedCompositeFieldContainer[_control_pb2.AuditRecord]
    layouts: _containers.RepeatedCompositeFieldContainer[_control_pb2.LayoutDecision]
    def __init__(self, current: _Optional[_Iterable[_Union[_control_pb2.TopologyDecision, _Mapping]]] = ..., recent: _Optional[_Iterable[_Union[_control_pb2.AuditRecord, _Mapping]]] = ..., layouts: _Optional[_Iterable[_Union[_control_pb2.LayoutDecision, _Mapping]]] = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("request_id", "job")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    job: str
    def __init__(self, request_id: _Optional[str] = ..., job: _Optional[str] = ...) -> None: ...

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

class QueueQuery(_message.Message):
    __slots__ = ("worker", "topology", "limit")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    topology: str
    limit: int
    def __init__(self, worker: _Optional[str] = ..., topology: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class QueuedRow(_message.Message):
    __slots__ = ("request_id", "tenant", "lane", "prompt_tokens", "predicted_output_tokens", "waited_s", "service_s", "start_s", "slack_s", "relegated", "known", "why")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    SERVICE_S_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    SLACK_S_FIELD_NUMBER: _ClassVar[int]
    RELEGATED_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant: str
    lane: int
    prompt_tokens: int
    predicted_output_tokens: float
    waited_s: float
    service_s: float
    start_s: float
    slack_s: float
    relegated: bool
    known: bool
    why: str
    def __init__(self, request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., lane: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., predicted_output_tokens: _Optional[float] = ..., waited_s: _Optional[float] = ..., service_s: _Optional[float] = ..., start_s: _Optional[float] = ..., slack_s: _Optional[float] = ..., relegated: _Optional[bool] = ..., known: _Optional[bool] = ..., why: _Optional[str] = ...) -> None: ...

class QueueOrder(_message.Message):
    __slots__ = ("topology", "rows")
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    topology: str
    rows: _containers.RepeatedCompositeFieldContainer[QueuedRow]
    def __init__(self, topology: _Optional[str] = ..., rows: _Optional[_Iterable[_Union[QueuedRow, _Mapping]]] = ...) -> None: ...

class QueueReply(_message.Message):
    __slots__ = ("worker", "topology", "waiting", "parked", "relegated", "late", "running", "age_s", "ordered", "orders")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    PARKED_FIELD_NUMBER: _ClassVar[int]
    RELEGATED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    topology: str
    waiting: int
    parked: int
    relegated: int
    late: int
    running: int
    age_s: float
    ordered: bool
    orders: _containers.RepeatedCompositeFieldContainer[QueueOrder]
    def __init__(self, worker: _Optional[str] = ..., topology: _Optional[str] = ..., waiting: _Optional[int] = ..., parked: _Optional[int] = ..., relegated: _Optional[int] = ..., late: _Optional[int] = ..., running: _Optional[int] = ..., age_s: _Optional[float] = ..., ordered: _Optional[bool] = ..., orders: _Optional[_Iterable[_Union[QueueOrder, _Mapping]]] = ...) -> None: ...

class JobRow(_message.Message):
    __slots__ = ("job", "tenant", "model", "template", "calls", "running", "failed", "prompt_tokens", "cached_tokens", "output_tokens", "begun_age_s", "quiet_s", "busy_s", "request_id")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BEGUN_AGE_S_FIELD_NUMBER: _ClassVar[int]
    QUIET_S_FIELD_NUMBER: _ClassVar[int]
    BUSY_S_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    job: str
    tenant: str
    model: str
    template: str
    calls: int
    running: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    begun_age_s: float
    quiet_s: float
    busy_s: float
    request_id: str
    def __init__(self, job: _Optional[str] = ..., tenant: _Optional[str] = ..., model: _Optional[str] = ..., template: _Optional[str] = ..., calls: _Optional[int] = ..., running: _Optional[int] = ..., failed: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., begun_age_s: _Optional[float] = ..., quiet_s: _Optional[float] = ..., busy_s: _Optional[float] = ..., request_id: _Optional[str] = ...) -> None: ...

class JobsReply(_message.Message):
    __slots__ = ("gateway", "jobs", "left_out")
    GATEWAY_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    gateway: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobRow]
    left_out: int
    def __init__(self, gateway: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobRow, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...
