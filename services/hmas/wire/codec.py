"""The codec between the dataclasses of `hmas.contracts` and protobuf messages.

For each pair one encoder and one decoder are compiled at import, as `dataclasses` compiles `__init__`. Every request is
reported in telemetry, and converting by inspecting the fields each time would cost several times as much.
"""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message

from hmas.contracts import control, execution, registry, request, telemetry, views
from hmas.wire.v1 import control_pb2, execution_pb2, registry_pb2, telemetry_pb2, types_pb2, views_pb2

T = TypeVar("T")


class WireError(ValueError):
    """Received bytes cannot be decoded: they are no message of the expected type, or a value is outside its
    enumeration."""


_PAIRS: tuple[tuple[types.ModuleType, types.ModuleType, tuple[str, ...]], ...] = (
    (request, types_pb2, ("Slo", "Tags", "Cost", "Annotation", "Request")),
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
    (
        execution,
        execution_pb2,
        (
            "Submit", "Annotate", "Withdraw", "Adopt", "Synced", "Started", "FirstToken", "Progress", "Ended",
            "Declined", "Timeline", "Grant", "Stop", "Refusal", "EngineShare", "Load",
        ),
    ),
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
    """Returns the Python source that encodes one field of the dataclass instance `v`, and the source that decodes it
    from the message `m`. Names that these expressions need are added to `scope`."""
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
        raise TypeError(
            f"{cls.__name__}: the fields of the dataclass {names} differ from those of the protobuf message"
            f" {wire_names}: change one of them and generate hmas.wire.v1 again"
        )
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
    """Returns the protobuf message for a dataclass instance. Raises KeyError if its type has no message."""
    return _encoders[type(value)](value)


def from_message(cls: type[T], message: Any) -> T:
    """Returns the instance of `cls` for a protobuf message. Raises WireError if a value is outside its enumeration."""
    try:
        return _decoders[cls](message)  # type: ignore[no-any-return]
    except ValueError as error:
        raise WireError(f"a {cls.__name__} message has a value that is not allowed: {error}") from error


def encode(value: Any) -> bytes:
    """Returns a dataclass instance as protobuf bytes. Raises KeyError if its type has no message."""
    return to_message(value).SerializeToString()  # type: ignore[no-any-return]


def decode(cls: type[T], data: bytes) -> T:
    """Returns the instance of `cls` that protobuf bytes hold. Raises WireError if they cannot be decoded, and KeyError
    if `cls` has no message."""
    try:
        message = _messages[cls].FromString(data)
    except DecodeError as error:
        raise WireError(f"{len(data)} bytes are not a valid {cls.__name__} message: {error}") from error
    return from_message(cls, message)


def wire_types() -> tuple[type, ...]:
    """Returns every dataclass that has a protobuf message, for round-trip tests and the page of NATS subjects."""
    return tuple(_messages)
