"""Events and effects of the control agents: QoS, meta controller, Statera."""

from dataclasses import dataclass

from hmas.contracts.control import (
    AuditRecord,
    ControlTuple,
    Hints,
    Pin,
    TopologyDecision,
    TopologyName,
    TopologyReceived,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.contracts.views import VLong, VShort


@dataclass(frozen=True, slots=True)
class WorkerReported:
    telemetry: WorkerTelemetry


@dataclass(frozen=True, slots=True)
class GatewayReported:
    telemetry: GatewayTelemetry


@dataclass(frozen=True, slots=True)
class ShortViewReceived:
    view: VShort


@dataclass(frozen=True, slots=True)
class LongViewReceived:
    view: VLong


@dataclass(frozen=True, slots=True)
class PinChanged:
    pin: Pin


@dataclass(frozen=True, slots=True)
class SelectorAnswered:
    """A slow selector (an LLM) answered question `ask`. `error` is set instead where it did not, or badly."""

    ask: int
    pool: str
    answer: str  # raw text, validated by the agent
    error: str


@dataclass(frozen=True, slots=True)
class EpochGranted:
    """This copy holds the writer's lease; `epoch` grows with every take-over."""

    epoch: int


@dataclass(frozen=True, slots=True)
class EpochLost:
    pass


@dataclass(frozen=True, slots=True)
class TimerTicked:
    """Drives every cadence; the agent decides what is due."""


@dataclass(frozen=True, slots=True)
class TopologyRestored:
    """The last topology of a pool, read from the bucket at start, so that a new writer goes on from it."""

    decision: TopologyDecision


@dataclass(frozen=True, slots=True)
class TupleRestored:
    control: ControlTuple


QosEvent = WorkerReported | GatewayReported | HeartbeatReceived | EpochGranted | EpochLost | TimerTicked
MetaEvent = (
    ShortViewReceived
    | LongViewReceived
    | SelectorAnswered
    | PinChanged
    | HeartbeatReceived
    | TopologyRestored
    | EpochGranted
    | EpochLost
    | TimerTicked
)
StateraEvent = (
    ShortViewReceived
    | WorkerReported
    | HeartbeatReceived
    | TopologyReceived
    | TupleRestored
    | EpochGranted
    | EpochLost
    | TimerTicked
)


@dataclass(frozen=True, slots=True)
class PublishShort:
    view: VShort


@dataclass(frozen=True, slots=True)
class PublishLong:
    view: VLong


@dataclass(frozen=True, slots=True)
class PublishTopology:
    decision: TopologyDecision


@dataclass(frozen=True, slots=True)
class PublishTuple:
    control: ControlTuple


@dataclass(frozen=True, slots=True)
class PublishAudit:
    record: AuditRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AskSelector:
    """Put the view to the slow selector. Whatever comes back, and whenever, arrives as `SelectorAnswered`."""

    ask: int
    view: VLong
    current: TopologyName
    hints: Hints
    timeout_s: float


QosEffect = PublishShort | PublishLong
MetaEffect = PublishTopology | PublishAudit | AskSelector
StateraEffect = PublishTuple | PublishAudit
