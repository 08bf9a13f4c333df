"""The codec between contract dataclasses and protobuf messages.

For each pair one encoder and one decoder are compiled once, at import, as `dataclasses` compiles `__init__`:
telemetry is on the path of every request, and a reflective walk costs several times as much.
"""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message

from hmas.contracts import control, registry, request, telemetry, views, worker
from hmas.wire.v1 import control_pb2, execution_pb2, registry_pb2, telemetry_pb2, types_pb2, views_pb2

T = TypeVar("T")


class WireError(ValueError):
    """Bytes that are not a valid message of the expected type, or hold a value outside its enumeration."""


_PAIRS: tuple[tuple[types.ModuleType, types.ModuleType, tuple[str, ...]], ...] = (
    (request, types_pb2, ("Slo", "Tags", "Cost", "Annotation")),
    (control, types_pb2, ("Hints",)),
    (
        control,
        control_pb2,
        ("TopologyDecision", "EngineControl", "FenceBucket", "Fence", "ControlTuple", "Pin", "AuditRecord"),
    ),
    (
        telemetry,
        telemetry_pb2,
        (
            "EngineSample", "RequestQueued", "RequestDispatched", "FirstTokenSeen", "RequestFinished",
            "RequestRunning", "WorkerTelemetry", "RequestOffered", "RequestSettled", "GatewayTelemetry",
        ),
    ),
    (views, views_pb2, ("Tail", "EngineView", "VShort", "ShareView", "VLong")),
    (registry, registry_pb2, ("EngineInfo", "WorkerHeartbeat")),
    (worker, execution_pb2, ("Timeline",)),
)  # fmt: skip

_messages: dict[type, type[Message]] = {}
_encoders: dict[type, Callable[[Any], Any]] = {}
_decoders: dict[type, Callable[[Any], Any]] = {}


def _unwrap_optional(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (a for a in get_args(hint) if a is not type(None))
        return inner, True
    return hint, False


def _expressions(name: str, hint: Any, scope: dict[str, Any]) -> tuple[str, str]:
    """Source of one field's encode and decode expressions; `v` is the dataclass, `m` the message."""
    inner, optional = _unwrap_optional(hint)
    encode, decode = f"v.{name}", f"m.{name}"
    if get_origin(inner) is tuple:
        (item, _) = get_args(inner)
        if is_dataclass(item):
            scope[f"e_{name}"], scope[f"d_{name}"] = _encoders[item], _decoders[item]  # type: ignore[index]
            return f"[e_{name}(i) for i in v.{name}]", f"tuple([d_{name}(i) for i in m.{name}])"
        return encode, f"tuple(m.{name})"
    if is_dataclass(inner):
        scope[f"e_{name}"], scope[f"d_{name}"] = _encoders[inner], _decoders[inner]  # type: ignore[index]
        encode, decode = f"e_{name}(v.{name})", f"d_{name}(m.{name})"
    elif isinstance(inner, type) and issubclass(inner, Enum):
        scope[f"d_{name}"] = inner
        decode = f"d_{name}(m.{name})"
    if optional:
        encode = encode if encode == f"v.{name}" else f"None if v.{name} is None else {encode}"
        decode = f"{decode} if m.HasField({name!r}) else None"
    return encode, decode


def _compile(cls: type, message: type[Message]) -> None:
    names = [f.name for f in fields(cls)]
    wire_names = [f.name for f in message.DESCRIPTOR.fields]
    if sorted(names) != sorted(wire_names):
        raise TypeError(f"{cls.__name__}: contract fields {names} differ from wire fields {wire_names}")
    hints = get_type_hints(cls)
    scope: dict[str, Any] = {"Message": message, "Cls": cls}
    pairs = [_expressions(name, hints[name], scope) for name in names]
    encode = ", ".join(f"{n}={e}" for n, (e, _) in zip(names, pairs, strict=True))
    decode = ", ".join(f"{n}={d}" for n, (_, d) in zip(names, pairs, strict=True))
    _messages[cls] = message
    _encoders[cls] = eval(f"lambda v: Message({encode})", scope)
    _decoders[cls] = eval(f"lambda m: Cls({decode})", scope)


for _contracts, _pb2, _names in _PAIRS:
    for _name in _names:
        _compile(getattr(_contracts, _name), getattr(_pb2, _name))


def to_message(value: Any) -> Any:
    """The protobuf message of a contract dataclass. Raises KeyError for a type that has none."""
    return _encoders[type(value)](value)


def from_message(cls: type[T], message: Any) -> T:
    """The dataclass of a message. Raises WireError where a value is outside its enumeration."""
    try:
        return _decoders[cls](message)  # type: ignore[no-any-return]
    except ValueError as error:
        raise WireError(f"{cls.__name__}: {error}") from error


def encode(value: Any) -> bytes:
    """Bytes of a contract dataclass."""
    return to_message(value).SerializeToString()  # type: ignore[no-any-return]


def decode(cls: type[T], data: bytes) -> T:
    """A contract dataclass from bytes. Raises WireError."""
    try:
        message = _messages[cls].FromString(data)
    except DecodeError as error:
        raise WireError(f"{cls.__name__}: {error}") from error
    return from_message(cls, message)


def wire_types() -> tuple[type, ...]:
    """Every dataclass that crosses the wire, for round-trip tests and the subject documentation."""
    return tuple(_messages)
