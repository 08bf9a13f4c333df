from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("sender", "incarnation", "received", "session", "resume")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    sender: str
    incarnation: str
    received: int
    session: str
    resume: bool
    def __init__(self, sender: _Optional[str] = ..., incarnation: _Optional[str] = ..., received: _Optional[int] = ..., session: _Optional[str] = ..., resume: _Optional[bool] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request_id", "attempt", "model", "tenant", "flow", "prompt_tokens", "max_tokens", "stream", "slo", "slo_stated", "priority", "weight", "importance", "waited_s", "relegate", "path", "body", "strip_usage", "replay_output_tokens", "traceparent", "promised")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SLO_FIELD_NUMBER: _ClassVar[int]
    SLO_STATED_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    IMPORTANCE_FIELD_NUMBER: _ClassVar[int]
    WAITED_S_FIELD_NUMBER: _ClassVar[int]
    RELEGATE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    STRIP_USAGE_FIELD_NUMBER: _ClassVar[int]
    REPLAY_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    model: str
    tenant: str
    flow: str
    prompt_tokens: int
    max_tokens: int
    stream: bool
    slo: _types_pb2.Slo
    slo_stated: bool
    priority: int
    weight: float
    importance: float
    waited_s: float
    relegate: bool
    path: str
    body: bytes
    strip_usage: bool
    replay_output_tokens: int
    traceparent: str
    promised: bool
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., model: _Optional[str] = ..., tenant: _Optional[str] = ..., flow: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., max_tokens: _Optional[int] = ..., stream: _Optional[bool] = ..., slo: _Optional[_Union[_types_pb2.Slo, _Mapping]] = ..., slo_stated: _Optional[bool] = ..., priority: _Optional[int] = ..., weight: _Optional[float] = ..., importance: _Optional[float] = ..., waited_s: _Optional[float] = ..., relegate: _Optional[bool] = ..., path: _Optional[str] = ..., body: _Optional[bytes] = ..., strip_usage: _Optional[bool] = ..., replay_output_tokens: _Optional[int] = ..., traceparent: _Optional[str] = ..., promised: _Optional[bool] = ...) -> None: ...

class Annotate(_message.Message):
    __slots__ = ("request_id", "attempt", "annotation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    annotation: _types_pb2.Annotation
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., annotation: _Optional[_Union[_types_pb2.Annotation, _Mapping]] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Recall(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class GatewayOp(_message.Message):
    __slots__ = ("submit", "annotate", "cancel", "recall")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    annotate: Annotate
    cancel: Cancel
    recall: Recall
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ..., annotate: _Optional[_Union[Annotate, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., recall: _Optional[_Union[Recall, _Mapping]] = ...) -> None: ...

class GatewayFrame(_message.Message):
    __slots__ = ("seq", "ack", "hello", "ops")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    ack: int
    hello: Hello
    ops: _containers.RepeatedCompositeFieldContainer[GatewayOp]
    def __init__(self, seq: _Optional[int] = ..., ack: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., ops: _Optional[_Iterable[_Union[GatewayOp, _Mapping]]] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("request_id", "attempt", "data", "tokens", "at_us")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    data: bytes
    tokens: int
    at_us: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., data: _Optional[bytes] = ..., tokens: _Optional[int] = ..., at_us: _Optional[int] = ...) -> None: ...

class Timeline(_message.Message):
    __slots__ = ("worker", "engine", "topology", "queued_s", "first_token_s", "finished_s", "queue_length", "overtaken", "switches", "upper_output_tokens", "relegated")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    QUEUED_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    FINISHED_S_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    OVERTAKEN_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    UPPER_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RELEGATED_FIELD_NUMBER: _ClassVar[int]
    worker: str
    engine: str
    topology: str
    queued_s: float
    first_token_s: float
    finished_s: float
    queue_length: int
    overtaken: int
    switches: int
    upper_output_tokens: float
    relegated: bool
    def __init__(self, worker: _Optional[str] = ..., engine: _Optional[str] = ..., topology: _Optional[str] = ..., queued_s: _Optional[float] = ..., first_token_s: _Optional[float] = ..., finished_s: _Optional[float] = ..., queue_length: _Optional[int] = ..., overtaken: _Optional[int] = ..., switches: _Optional[int] = ..., upper_output_tokens: _Optional[float] = ..., relegated: _Optional[bool] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("request_id", "attempt", "outcome", "message", "status", "data", "output_tokens", "prompt_tokens", "tpot_s", "first_us", "last_us", "retry_after_s", "timeline")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TPOT_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_US_FIELD_NUMBER: _ClassVar[int]
    LAST_US_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    outcome: str
    message: str
    status: int
    data: bytes
    output_tokens: int
    prompt_tokens: int
    tpot_s: float
    first_us: int
    last_us: int
    retry_after_s: float
    timeline: Timeline
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ..., status: _Optional[int] = ..., data: _Optional[bytes] = ..., output_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., tpot_s: _Optional[float] = ..., first_us: _Optional[int] = ..., last_us: _Optional[int] = ..., retry_after_s: _Optional[float] = ..., timeline: _Optional[_Union[Timeline, _Mapping]] = ...) -> None: ...

class Handback(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("queued", "queued_tokens", "running", "backlog_s", "draining")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_S_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    queued: int
    queued_tokens: int
    running: int
    backlog_s: float
    draining: bool
    def __init__(self, queued: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., running: _Optional[int] = ..., backlog_s: _Optional[float] = ..., draining: _Optional[bool] = ...) -> None: ...

class WorkerOp(_message.Message):
    __slots__ = ("tokens", "finished", "handback", "load")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    HANDBACK_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    tokens: Tokens
    finished: Finished
    handback: Handback
    load: Load
    def __init__(self, tokens: _Optional[_Union[Tokens, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ..., handback: _Optional[_Union[Handback, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ...) -> None: ...

class WorkerFrame(_message.Message):
    __slots__ = ("seq", "ack", "hello", "ops")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    ack: int
    hello: Hello
    ops: _containers.RepeatedCompositeFieldContainer[WorkerOp]
    def __init__(self, seq: _Optional[int] = ..., ack: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., ops: _Optional[_Iterable[_Union[WorkerOp, _Mapping]]] = ...) -> None: ...
