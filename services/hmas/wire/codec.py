"""The codec between the dataclasses of `hmas.contracts` and protobuf messages.

For each pair one function that fills the message and one that decodes it are compiled at import, as `dataclasses`
compiles `__init__`. Every request is reported in telemetry and passes from its gateway to a worker, and converting by
inspecting the fields each time would cost several times as much.
"""

import types
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from math import inf
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from google.protobuf.message import DecodeError, Message
from prometheus_client import Counter

from hmas.contracts import (
    control,
    engine_kind,
    execution,
    job,
    pair_forecast,
    past,
    pool_plan,
    queue,
    registry,
    request,
    scheduling_gain,
    telemetry,
    use,
    views,
)
from hmas.wire.limits import condition, is_allowed, offence
from hmas.wire.v1 import (
    control_pb2,
    execution_pb2,
    observe_pb2,
    past_pb2,
    pool_plan_pb2,
    registry_pb2,
    telemetry_pb2,
    types_pb2,
    use_pb2,
    views_pb2,
)

T = TypeVar("T")


MALFORMED = Counter("hmas_wire_malformed_total", "Messages received that were not valid, so were dropped", ["message"])
MAX_ERROR_CHARS = 300
MAX_BATCH = 4096  # requests, or requests times kinds of engines, in one call of perception or prediction


class WireError(ValueError):
    """Received bytes cannot be decoded: they are not a message of the expected type, or a value is not allowed
    (`hmas.wire.limits`)."""


_PAIRS: tuple[tuple[types.ModuleType, types.ModuleType, tuple[str, ...]], ...] = (
    (job, types_pb2, ("PrefixChain", "JobFacts")),
    (engine_kind, types_pb2, ("EngineKind",)),
    (request, types_pb2, ("Slo", "Tags", "Cost", "KindCost", "Annotation", "Request")),
    (control, types_pb2, ("Hints", "EngineClass", "Layout")),
    (
        control,
        control_pb2,
        (
            "Split", "TopologyDecision", "LayoutDecision", "StepTime", "EngineControl", "FenceBucket", "FenceTable",
            "Fence", "ControlTuple", "Pin", "AuditRecord",
        ),
    ),
    (scheduling_gain, control_pb2, ("TenantScheduled", "SchedulingGain")),
    (
        pool_plan,
        pool_plan_pb2,
        ("Group", "PoolPlan", "PlanPin", "PlanStep", "ExpectedShare", "PlannedType", "PlanDecision"),
    ),
    (
        telemetry,
        telemetry_pb2,
        (
            "EngineSample", "RequestQueued", "RequestDispatched", "FirstTokenSeen", "SplitLegs", "RequestFinished",
            "RequestRunning", "WorkerTelemetry", "RequestOffered", "RequestSettled", "GatewayTelemetry",
        ),
    ),
    (views, views_pb2, ("Tail", "EngineView", "VShort", "ShareView", "DemandView", "PaceView", "VLong")),
    (use, use_pb2, ("TenantUse", "ToldPromise", "HeldPrefixes", "ToldStage", "UseReport")),
    (past, past_pb2, ("PastBlock", "PastQuery", "PastReply")),
    (registry, registry_pb2, ("EngineInfo", "WorkerHeartbeat")),
    (job, observe_pb2, ("JobRow", "JobsReply")),
    (queue, observe_pb2, ("QueueQuery", "QueuedRow", "QueueOrder", "QueueReply")),
    (pair_forecast, execution_pb2, ("PairForecast", "PairDecision")),
    (
        execution,
        execution_pb2,
        (
            "Submit", "Annotate", "Withdraw", "Adopt", "Synced", "Started", "Prefilled", "FirstToken", "Progress",
            "Ended", "Declined", "Timeline", "Grant", "Proceed", "Stop", "Refusal", "EngineShare", "Load",
        ),
    ),
)  # fmt: skip

_messages: dict[type, type[Message]] = {}
_fillers: dict[type, Callable[[Any, Any], None]] = {}
_decoders: dict[type, Callable[[Any], Any]] = {}


def _unwrap_optional(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (a for a in get_args(hint) if a is not type(None))
        return inner, True
    return hint, False


def _sources(name: str, hint: Any, scope: dict[str, Any]) -> tuple[str, str]:
    """Returns the Python statement that writes one field of the dataclass instance `v` into the message `m`, and the
    expression that decodes it from `m`. Names that they need are added to `scope`."""
    inner, optional = _unwrap_optional(hint)
    item = get_args(inner)[0] if get_origin(inner) is tuple else inner
    nested = is_dataclass(item)
    if nested:
        scope[f"f_{name}"], scope[f"d_{name}"] = _fillers[item], _decoders[item]
    if item is not inner:
        if nested:
            return f"for i in v.{name}: f_{name}(m.{name}.add(), i)", f"tuple([d_{name}(i) for i in m.{name}])"
        return f"m.{name}.extend(v.{name})", f"tuple(m.{name})"
    fill, decode = f"m.{name} = v.{name}", f"m.{name}"
    if nested:
        fill, decode = f"f_{name}(m.{name}, v.{name})", f"d_{name}(m.{name})"
    elif isinstance(inner, type) and issubclass(inner, Enum):
        scope[f"d_{name}"] = inner
        decode = f"d_{name}(m.{name})"
    if optional:
        fill, decode = f"if v.{name} is not None: {fill}", f"{decode} if m.HasField({name!r}) else None"
    return fill, decode


def _compile(cls: type, message: type[Message]) -> None:
    names = [f.name for f in fields(cls)]
    wire_names = [f.name for f in message.DESCRIPTOR.fields]
    if sorted(names) != sorted(wire_names):
        raise TypeError(
            f"{cls.__name__}: the fields of the dataclass {names} differ from those of the protobuf message"
            f" {wire_names}: change one of them and generate hmas.wire.v1 again"
        )
    # A frozen dataclass is slow to make: it sets each field by a call. So its fields are set in an instance of a class
    # that has the same slots and is not frozen, and the instance then changes its class.
    thawed = type(cls.__name__, (), {"__slots__": names})
    hints = get_type_hints(cls)
    scope: dict[str, Any] = {"Cls": cls, "Thawed": thawed, "new": object.__new__}
    sources = {name: _sources(name, hints[name], scope) for name in names}
    # `SetInParent` keeps a message apart from an absent one although no field of it is set.
    fill = ["def fill(m, v):", "m.SetInParent()", *(f for f, _ in sources.values())]
    decode = ["def decode(m):", "v = new(Thawed)", *(f"v.{n} = {d}" for n, (_, d) in sources.items())]
    allowed = condition(cls, hints)
    if allowed:
        scope |= {"offence": offence, "inf": inf}
        decode.append(f"if not ({allowed}): raise ValueError(offence(Cls, v))")
    exec("\n ".join(fill) + "\n" + "\n ".join([*decode, "v.__class__ = Cls", "return v"]), scope)
    _messages[cls], _fillers[cls], _decoders[cls] = message, scope["fill"], scope["decode"]


for _contracts, _pb2, _names in _PAIRS:
    for _name in _names:
        _compile(getattr(_contracts, _name), getattr(_pb2, _name))


def fill(message: Any, value: Any) -> None:
    """Writes a dataclass instance into its empty protobuf message. Raises KeyError if its type has no message."""
    _fillers[type(value)](message, value)


def to_message(value: Any) -> Any:
    """Returns the protobuf message for a dataclass instance. Raises KeyError if its type has no message."""
    message = _messages[type(value)]()
    fill(message, value)
    return message


def from_message(cls: type[T], message: Any) -> T:
    """Returns the instance of `cls` for a protobuf message. Raises WireError, and counts it, if a value is outside its
    enumeration or not allowed by `hmas.wire.limits`."""
    try:
        return _decoders[cls](message)  # type: ignore[no-any-return]
    except ValueError as error:
        raise malformed(cls, f"a {cls.__name__} message has a value that is not allowed: {error}") from error


def encode(value: Any) -> bytes:
    """Returns a dataclass instance as protobuf bytes. Raises KeyError if its type has no message."""
    return to_message(value).SerializeToString()  # type: ignore[no-any-return]


def decode(cls: type[T], data: bytes) -> T:
    """Returns the instance of `cls` that protobuf bytes hold. Raises WireError, and counts it, if they cannot be
    decoded or a value is not allowed; KeyError if `cls` has no message."""
    try:
        message = _messages[cls].FromString(data)
    except DecodeError as error:
        raise malformed(cls, f"{len(data)} bytes are not a valid {cls.__name__} message: {error}") from error
    return from_message(cls, message)


def checked(value: T) -> T:
    """Returns a dataclass instance that was made of a message by hand, if its values are allowed: what it holds of
    other dataclasses is not looked at. Raises WireError, and counts it, otherwise."""
    cls: Any = type(value)
    if not is_allowed(cls)(value):
        raise malformed(cls, offence(cls, value))
    return value


def batch(requests: Sequence[T]) -> Sequence[T]:
    """Returns the requests of one call. Raises WireError, and counts it, if they are more than MAX_BATCH."""
    if len(requests) > MAX_BATCH:
        raise malformed(type(requests[0]), f"a call has at most {MAX_BATCH} requests, not {len(requests)}")
    return requests


def malformed(cls: type, message: str) -> WireError:
    """Counts a message that is not valid, and returns the error for it, cut to MAX_ERROR_CHARS."""
    MALFORMED.labels(cls.__name__).inc()
    return WireError(message[:MAX_ERROR_CHARS])


def wire_types() -> tuple[type, ...]:
    """Returns every dataclass that has a protobuf message, for round-trip tests and the page of NATS subjects."""
    return tuple(_messages)
