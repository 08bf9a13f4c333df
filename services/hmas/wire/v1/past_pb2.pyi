from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PastBlock(_message.Message):
    __slots__ = ("number", "age_s", "span_s", "rows")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    SPAN_S_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    number: int
    age_s: float
    span_s: float
    rows: bytes
    def __init__(self, number: _Optional[int] = ..., age_s: _Optional[float] = ..., span_s: _Optional[float] = ..., rows: _Optional[bytes] = ...) -> None: ...

class PastQuery(_message.Message):
    __slots__ = ("pool", "last_s", "first")
    POOL_FIELD_NUMBER: _ClassVar[int]
    LAST_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    pool: str
    last_s: float
    first: int
    def __init__(self, pool: _Optional[str] = ..., last_s: _Optional[float] = ..., first: _Optional[int] = ...) -> None: ...

class PastReply(_message.Message):
    __slots__ = ("owner", "blocks", "following")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    owner: str
    blocks: _containers.RepeatedCompositeFieldContainer[PastBlock]
    following: int
    def __init__(self, owner: _Optional[str] = ..., blocks: _Optional[_Iterable[_Union[PastBlock, _Mapping]]] = ..., following: _Optional[int] = ...) -> None: ...
