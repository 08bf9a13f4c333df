from hmas.wire.v1 import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EngineInfo(_message.Message):
    __slots__ = ("engine", "up", "dialect", "hardware", "max_model_len", "kv_capacity_tokens", "block_size", "max_num_seqs", "endpoint", "model", "paths", "adapters", "epoch", "suspected", "kv", "role", "sleep_level", "kv_version", "bootstrap_port")
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    HARDWARE_FIELD_NUMBER: _ClassVar[int]
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    KV_CAPACITY_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUSPECTED_FIELD_NUMBER: _ClassVar[int]
    KV_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    SLEEP_LEVEL_FIELD_NUMBER: _ClassVar[int]
    KV_VERSION_FIELD_NUMBER: _ClassVar[int]
    BOOTSTRAP_PORT_FIELD_NUMBER: _ClassVar[int]
    engine: str
    up: bool
    dialect: str
    hardware: str
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    endpoint: str
    model: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    adapters: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    suspected: bool
    kv: str
    role: str
    sleep_level: int
    kv_version: str
    bootstrap_port: int
    def __init__(self, engine: _Optional[str] = ..., up: _Optional[bool] = ..., dialect: _Optional[str] = ..., hardware: _Optional[str] = ..., max_model_len: _Optional[int] = ..., kv_capacity_tokens: _Optional[int] = ..., block_size: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., endpoint: _Optional[str] = ..., model: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., adapters: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., suspected: _Optional[bool] = ..., kv: _Optional[str] = ..., role: _Optional[str] = ..., sleep_level: _Optional[int] = ..., kv_version: _Optional[str] = ..., bootstrap_port: _Optional[int] = ...) -> None: ...

class WorkerHeartbeat(_message.Message):
    __slots__ = ("worker", "incarnation", "address", "wire_version", "pool", "aliases", "engines", "queued", "queued_tokens", "running", "max_queued", "max_queued_tokens", "backlog_s", "draining", "observes", "observed_grants", "observed_wait_s", "layout")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WIRE_VERSION_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    ENGINES_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_S_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    OBSERVES_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_GRANTS_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    worker: str
    incarnation: str
    address: str
    wire_version: int
    pool: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    engines: _containers.RepeatedCompositeFieldContainer[EngineInfo]
    queued: int
    queued_tokens: int
    running: int
    max_queued: int
    max_queued_tokens: int
    backlog_s: float
    draining: bool
    observes: bool
    observed_grants: int
    observed_wait_s: float
    layout: _types_pb2.Layout
    def __init__(self, worker: _Optional[str] = ..., incarnation: _Optional[str] = ..., address: _Optional[str] = ..., wire_version: _Optional[int] = ..., pool: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., engines: _Optional[_Iterable[_Union[EngineInfo, _Mapping]]] = ..., queued: _Optional[int] = ..., queued_tokens: _Optional[int] = ..., running: _Optional[int] = ..., max_queued: _Optional[int] = ..., max_queued_tokens: _Optional[int] = ..., backlog_s: _Optional[float] = ..., draining: _Optional[bool] = ..., observes: _Optional[bool] = ..., observed_grants: _Optional[int] = ..., observed_wait_s: _Optional[float] = ..., layout: _Optional[_Union[_types_pb2.Layout, _Mapping]] = ...) -> None: ...
