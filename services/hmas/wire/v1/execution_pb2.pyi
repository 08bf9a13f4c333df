from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Hello(_message.Message):
    __slots__ = ("sender", "incarnation", "wire_version", "nonce", "proof")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    sender: str
    incarnation: str
    wire_version: int
    nonce: bytes
    proof: bytes
    def __init__(self, sender: _Optional[str] = ..., incarnation: _Optional[str] = ..., wire_version: _Optional[int] = ..., nonce: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Submit(_message.Message):
    __slots__ = ("request", "attempt", "promised", "again")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    request: _types_pb2.Request
    attempt: int
    promised: bool
    again: bool
    def __init__(self, request: _Optional[_Union[_types_pb2.Request, _Mapping]] = ..., attempt: _Optional[int] = ..., promised: _Optional[bool] = ..., again: _Optional[bool] = ...) -> None: ...

class Annotate(_message.Message):
    __slots__ = ("request_id", "attempt", "annotation")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    annotation: _types_pb2.Annotation
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., annotation: _Optional[_Union[_types_pb2.Annotation, _Mapping]] = ...) -> None: ...

class Withdraw(_message.Message):
    __slots__ = ("request_id", "attempt")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class Adopt(_message.Message):
    __slots__ = ("request", "attempt", "annotation", "engine", "grant", "output_tokens", "granted_s", "first_token_s", "prefill", "prefilled")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_S_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_FIELD_NUMBER: _ClassVar[int]
    request: _types_pb2.Request
    attempt: int
    annotation: _types_pb2.Annotation
    engine: str
    grant: int
    output_tokens: int
    granted_s: float
    first_token_s: float
    prefill: str
    prefilled: bool
    def __init__(self, request: _Optional[_Union[_types_pb2.Request, _Mapping]] = ..., attempt: _Optional[int] = ..., annotation: _Optional[_Union[_types_pb2.Annotation, _Mapping]] = ..., engine: _Optional[str] = ..., grant: _Optional[int] = ..., output_tokens: _Optional[int] = ..., granted_s: _Optional[float] = ..., first_token_s: _Optional[float] = ..., prefill: _Optional[str] = ..., prefilled: _Optional[bool] = ...) -> None: ...

class Synced(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Started(_message.Message):
    __slots__ = ("request_id", "grant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ...) -> None: ...

class Prefilled(_message.Message):
    __slots__ = ("request_id", "grant", "cached_tokens")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    cached_tokens: int
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ..., cached_tokens: _Optional[int] = ...) -> None: ...

class FirstToken(_message.Message):
    __slots__ = ("request_id", "grant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("request_ids", "output_tokens")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    output_tokens: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., output_tokens: _Optional[_Iterable[int]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("request_id", "grant", "outcome", "message", "status", "output_tokens", "prompt_tokens", "cached_tokens", "retryable", "busy", "unreached", "stalled", "at_prefill", "given_up")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    AT_PREFILL_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    outcome: str
    message: str
    status: int
    output_tokens: int
    prompt_tokens: int
    cached_tokens: int
    retryable: bool
    busy: bool
    unreached: bool
    stalled: bool
    at_prefill: bool
    given_up: bool
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ..., status: _Optional[int] = ..., output_tokens: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., retryable: _Optional[bool] = ..., busy: _Optional[bool] = ..., unreached: _Optional[bool] = ..., stalled: _Optional[bool] = ..., at_prefill: _Optional[bool] = ..., given_up: _Optional[bool] = ...) -> None: ...

class Declined(_message.Message):
    __slots__ = ("request_id", "grant")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ...) -> None: ...

class GatewayOp(_message.Message):
    __slots__ = ("submit", "annotate", "withdraw", "adopt", "synced", "started", "first_token", "progress", "ended", "declined", "prefilled")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ANNOTATE_FIELD_NUMBER: _ClassVar[int]
    WITHDRAW_FIELD_NUMBER: _ClassVar[int]
    ADOPT_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    FIRST_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    DECLINED_FIELD_NUMBER: _ClassVar[int]
    PREFILLED_FIELD_NUMBER: _ClassVar[int]
    submit: Submit
    annotate: Annotate
    withdraw: Withdraw
    adopt: Adopt
    synced: Synced
    started: Started
    first_token: FirstToken
    progress: Progress
    ended: Ended
    declined: Declined
    prefilled: Prefilled
    def __init__(self, submit: _Optional[_Union[Submit, _Mapping]] = ..., annotate: _Optional[_Union[Annotate, _Mapping]] = ..., withdraw: _Optional[_Union[Withdraw, _Mapping]] = ..., adopt: _Optional[_Union[Adopt, _Mapping]] = ..., synced: _Optional[_Union[Synced, _Mapping]] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., first_token: _Optional[_Union[FirstToken, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., declined: _Optional[_Union[Declined, _Mapping]] = ..., prefilled: _Optional[_Union[Prefilled, _Mapping]] = ...) -> None: ...

class GatewayFrame(_message.Message):
    __slots__ = ("hello", "ops")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ops: _containers.RepeatedCompositeFieldContainer[GatewayOp]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ops: _Optional[_Iterable[_Union[GatewayOp, _Mapping]]] = ...) -> None: ...

class Timeline(_message.Message):
    __slots__ = ("engine", "topology", "queued_s", "queue_length", "overtaken", "switches", "upper_output_tokens", "relegated", "pace_class", "promised_tokens", "asleep_s", "memory_s")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_FIELD_NUMBER: _ClassVar[int]
    QUEUED_S_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    OVERTAKEN_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    UPPER_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RELEGATED_FIELD_NUMBER: _ClassVar[int]
    PACE_CLASS_FIELD_NUMBER: _ClassVar[int]
    PROMISED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ASLEEP_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_S_FIELD_NUMBER: _ClassVar[int]
    engine: str
    topology: str
    queued_s: float
    queue_length: int
    overtaken: int
    switches: int
    upper_output_tokens: float
    relegated: bool
    pace_class: str
    promised_tokens: int
    asleep_s: float
    memory_s: float
    def __init__(self, engine: _Optional[str] = ..., topology: _Optional[str] = ..., queued_s: _Optional[float] = ..., queue_length: _Optional[int] = ..., overtaken: _Optional[int] = ..., switches: _Optional[int] = ..., upper_output_tokens: _Optional[float] = ..., relegated: _Optional[bool] = ..., pace_class: _Optional[str] = ..., promised_tokens: _Optional[int] = ..., asleep_s: _Optional[float] = ..., memory_s: _Optional[float] = ...) -> None: ...

class PairForecast(_message.Message):
    __slots__ = ("engine", "prefill", "first_s", "late", "step_s")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    FIRST_S_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    engine: str
    prefill: str
    first_s: float
    late: float
    step_s: float
    def __init__(self, engine: _Optional[str] = ..., prefill: _Optional[str] = ..., first_s: _Optional[float] = ..., late: _Optional[float] = ..., step_s: _Optional[float] = ...) -> None: ...

class PairDecision(_message.Message):
    __slots__ = ("taken", "other", "reason")
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    taken: PairForecast
    other: PairForecast
    reason: str
    def __init__(self, taken: _Optional[_Union[PairForecast, _Mapping]] = ..., other: _Optional[_Union[PairForecast, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("request_id", "attempt", "grant", "engine", "urgency", "pace_s", "timeline", "priority", "plugin", "prefill", "choice", "bootstrap_port")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    URGENCY_FIELD_NUMBER: _ClassVar[int]
    PACE_S_FIELD_NUMBER: _ClassVar[int]
    TIMELINE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PLUGIN_FIELD_NUMBER: _ClassVar[int]
    PREFILL_FIELD_NUMBER: _ClassVar[int]
    CHOICE_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_PORT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    grant: int
    engine: str
    urgency: float
    pace_s: float
    timeline: Timeline
    priority: int
    plugin: bool
    prefill: str
    choice: PairDecision
    bootstrap_port: int
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., grant: _Optional[int] = ..., engine: _Optional[str] = ..., urgency: _Optional[float] = ..., pace_s: _Optional[float] = ..., timeline: _Optional[_Union[Timeline, _Mapping]] = ..., priority: _Optional[int] = ..., plugin: _Optional[bool] = ..., prefill: _Optional[str] = ..., choice: _Optional[_Union[PairDecision, _Mapping]] = ..., bootstrap_port: _Optional[int] = ...) -> None: ...

class Proceed(_message.Message):
    __slots__ = ("request_id", "grant", "engine", "due_in_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    DUE_IN_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    engine: str
    due_in_s: float
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ..., engine: _Optional[str] = ..., due_in_s: _Optional[float] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("request_id", "grant", "reason")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    grant: int
    reason: str
    def __init__(self, request_id: _Optional[str] = ..., grant: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("request_id", "attempt", "outcome", "message", "retry_after_s")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    attempt: int
    outcome: str
    message: str
    retry_after_s: float
    def __init__(self, request_id: _Optional[str] = ..., attempt: _Optional[int] = ..., outcome: _Optional[str] = ..., message: _Optional[str] = ..., retry_after_s: _Optional[float] = ...) -> None: ...

class EngineShare(_message.Message):
    __slots__ = ("engine", "slots", "generating", "asleep")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    GENERATING_FIELD_NUMBER: _ClassVar[int]
    ASLEEP_FIELD_NUMBER: _ClassVar[int]
    engine: str
    slots: int
    generating: bool
    asleep: bool
    def __init__(self, engine: _Optional[str] = ..., slots: _Optional[int] = ..., generating: _Optional[bool] = ..., asleep: _Optional[bool] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("queued", "queued_tokens", "running", "backlog_s", "draining", "shares", "step_s")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_S_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    STEP_S_FIELD_NUMBER: _ClassVar[int]
    queued: int
    queued_tokens: int
    running: int
    backlog_s: float
    draining: bool
    shares: _containers.RepeatedCompositeFieldContainer[EngineShare]
    step_s: float
    def __init__(self, queued: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., running: _Optional[int] = ..., backlog_s: _Optional[float] = ..., draining: _Optional[bool] = ..., shares: _Optional[_Iterable[_Union[EngineShare, _Mapping]]] = ..., step_s: _Optional[float] = ...) -> None: ...

class WorkerOp(_message.Message):
    __slots__ = ("grant", "stop", "refusal", "load", "proceed")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    PROCEED_FIELD_NUMBER: _ClassVar[int]
    grant: Grant
    stop: Stop
    refusal: Refusal
    load: Load
    proceed: Proceed
    def __init__(self, grant: _Optional[_Union[Grant, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., load: _Optional[_Union[Load, _Mapping]] = ..., proceed: _Optional[_Union[Proceed, _Mapping]] = ...) -> None: ...

class WorkerFrame(_message.Message):
    __slots__ = ("hello", "ops")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPS_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    ops: _containers.RepeatedCompositeFieldContainer[WorkerOp]
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., ops: _Optional[_Iterable[_Union[WorkerOp, _Mapping]]] = ...) -> None: ...
