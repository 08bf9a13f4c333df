"""The table of who publishes and who hears each message; live subscriptions, the simulator's bus and
`docs/subjects.md` are made from it."""

from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.cadences import (
    FORETELL_S,
    HEARTBEAT_S,
    LONG_VIEW_S,
    SHORT_VIEW_S,
    TELEMETRY_EVENTS,
    TELEMETRY_S,
    USE_S,
)
from hmas.contracts.control import (
    AuditRecord,
    ControlTuple,
    LayoutDecision,
    LayoutReceived,
    Pin,
    TopologyDecision,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.control_agents import (
    GatewayReported,
    LayoutRestored,
    LongViewReceived,
    PinChanged,
    PlanPinChanged,
    PlanRestored,
    ShortViewReceived,
    TopologyRestored,
    WorkerReported,
)
from hmas.contracts.gateway import UseReported, ViewReceived
from hmas.contracts.pool_plan import PlanDecision, PlanPin
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import GatewayTelemetry, WorkerTelemetry
from hmas.contracts.use import UseReport
from hmas.contracts.views import VLong, VShort


class Role(StrEnum):
    """The services and commands that publish or hear messages."""

    GATEWAY = "gateway"
    WORKER = "worker"
    PERCEPTION = "perception"
    PREDICTION = "prediction"
    QOS = "qos"
    META = "meta"
    STATERA = "statera"
    PIN = "`hmas pin`"
    TOP = "`hmas top`"
    CONSOLE = "`hmas console`"


@dataclass(frozen=True, slots=True)
class Hearer:
    """A role that hears a message. `event` is the class of the event that is made from the message for the role's
    agent; None means that only the shell uses the message. If `own`, it hears only messages about itself or its
    pool."""

    role: Role
    event: type | None = None
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One kind of message on the bus, identified by its class `message`. The subject ends with the value of the
    message's field `about`; empty means that nothing is appended. The simulator serves `hearers` in their order."""

    message: type
    publishers: tuple[Role, ...]
    subject: str
    about: str
    cadence: str
    hearers: tuple[Hearer, ...]


_TELEMETRY = f"every {1000 * TELEMETRY_S:g} ms or {TELEMETRY_EVENTS} events"
_REPEATED = "repeated every valid_for_s / 3"

ROUTES: tuple[Route, ...] = (
    Route(
        message=WorkerTelemetry,
        publishers=(Role.WORKER,),
        subject="telemetry.worker",
        about="worker",
        cadence=_TELEMETRY,
        hearers=(
            Hearer(Role.QOS, WorkerReported),
            Hearer(Role.STATERA, WorkerReported),
            Hearer(Role.PREDICTION, WorkerReported),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=GatewayTelemetry,
        publishers=(Role.GATEWAY,),
        subject="telemetry.gateway",
        about="gateway",
        cadence=f"{_TELEMETRY}, one message per pool",
        hearers=(Hearer(Role.QOS, GatewayReported), Hearer(Role.PERCEPTION, GatewayReported), Hearer(Role.CONSOLE)),
    ),
    Route(
        message=UseReport,
        publishers=(Role.GATEWAY,),
        subject="use",
        about="gateway",
        cadence=f"{1000 * USE_S:g} ms, where tenants have limits; after promises",
        hearers=(Hearer(Role.GATEWAY, UseReported),),
    ),
    Route(
        message=VShort,
        publishers=(Role.QOS,),
        subject="qos.short",
        about="pool",
        cadence=f"{1000 * SHORT_VIEW_S:g} ms",
        hearers=(
            Hearer(Role.META, ShortViewReceived),
            Hearer(Role.STATERA, ShortViewReceived),
            Hearer(Role.GATEWAY, ViewReceived),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=VLong,
        publishers=(Role.QOS,),
        subject="qos.long",
        about="pool",
        cadence=f"{LONG_VIEW_S:g} s",
        hearers=(Hearer(Role.META, LongViewReceived), Hearer(Role.TOP), Hearer(Role.CONSOLE)),
    ),
    Route(
        message=TopologyDecision,
        publishers=(Role.META,),
        subject="control.topology",
        about="pool",
        cadence=f"on decision, {_REPEATED}",
        hearers=(
            Hearer(Role.WORKER, TopologyReceived, own=True),
            Hearer(Role.STATERA, TopologyReceived),
            Hearer(Role.META, TopologyRestored),  # a standby copy follows the writer's decisions
            Hearer(Role.GATEWAY),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=LayoutDecision,
        publishers=(Role.META,),
        subject="control.layout",
        about="pool",
        cadence=f"on decision, {_REPEATED}",
        hearers=(
            Hearer(Role.WORKER, LayoutReceived, own=True),
            Hearer(Role.META, LayoutRestored),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=PlanDecision,
        publishers=(Role.META,),
        subject="control.plan",
        about="",
        cadence=f"on decision, {_REPEATED}, where there is a catalogue",
        hearers=(
            Hearer(Role.META, PlanRestored),
            Hearer(Role.GATEWAY),  # names the group of the engine that served a request
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=PlanPin,
        publishers=(Role.CONSOLE,),
        subject="control.plan_pin",
        about="",
        cadence="on command; kept in the bucket",
        hearers=(Hearer(Role.META, PlanPinChanged),),
    ),
    Route(
        message=SchedulingGain,
        publishers=(Role.META,),
        subject="gain",
        about="pool",
        cadence=f"{FORETELL_S:g} s, where the mesh only observes",
        hearers=(Hearer(Role.TOP), Hearer(Role.CONSOLE)),
    ),
    Route(
        message=ControlTuple,
        publishers=(Role.STATERA,),
        subject="control.tuple",
        about="worker",
        cadence=f"on change, {_REPEATED}",
        hearers=(
            Hearer(Role.WORKER, TupleReceived, own=True),
            Hearer(Role.GATEWAY),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=Pin,
        publishers=(Role.PIN, Role.CONSOLE),
        subject="control.pin",
        about="pool",
        cadence="on command; kept in the bucket",
        hearers=(Hearer(Role.META, PinChanged),),
    ),
    Route(
        message=WorkerHeartbeat,
        publishers=(Role.WORKER,),
        subject="registry",
        about="worker",
        cadence=f"{HEARTBEAT_S:g} s",
        hearers=(
            Hearer(Role.GATEWAY, HeartbeatReceived),
            Hearer(Role.WORKER),  # shares out what all of the pool discover
            Hearer(Role.QOS, HeartbeatReceived),
            Hearer(Role.META, HeartbeatReceived),
            Hearer(Role.STATERA, HeartbeatReceived),
            Hearer(Role.TOP),
            Hearer(Role.CONSOLE),
        ),
    ),
    Route(
        message=AuditRecord,
        publishers=(Role.META, Role.STATERA),
        subject="audit",
        about="",
        cadence="on decision",
        hearers=(Hearer(Role.TOP), Hearer(Role.CONSOLE)),
    ),
)
