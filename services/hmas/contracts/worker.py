"""The events and effects of the worker agent.

The wire, the live worker and the simulator all use them. They never hold a request's body or the bytes of an answer:
those never leave the gateway.
"""

from dataclasses import dataclass

from hmas.contracts.control import Layout, LayoutReceived, TopologyName, TopologyReceived, TupleReceived
from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry

# --- events: what happened (past tense) -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatewayConnected:
    """A gateway's stream was opened. `gateway` names one process, so that a restarted gateway has another name. Its
    snapshot follows: `Submit` and `Adopt`, ended by `Synced`. A stream of the same gateway that was open is closed
    first (`GatewayLost`)."""

    gateway: str


@dataclass(frozen=True, slots=True)
class FromGateway:
    """A message of a gateway. Instants in it are already on this host's clock."""

    gateway: str
    message: GatewayMessage


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """A gateway's stream ended or fell silent. What it had granted may go on at its engines."""

    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSampled:
    """A sample of the engine's own metrics. `counted` false: the engine has none, and the shell estimates them from
    what was granted there. The sample is at most `age_s` seconds old. `paced`: the engine heeds the
    paces of grants itself (the scheduler plug-in). `sleep_level`: it is asleep at that level of vLLM's, and its other
    figures are stale (0: it keeps its prefix cache, 1 and 2: it drops it); None: it is awake."""

    engine: str
    running: int
    waiting: int
    kv_usage: float
    preemptions_total: int
    step_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    counted: bool = True
    age_s: float = 0.0
    paced: bool = False
    sleep_level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheCounted:
    """What an engine's own events say of its KV cache: the `blocks` with cached content, None while nobody knows; how
    many were `stored` and `removed` since the last such event; and whether, before these, all were `cleared`."""

    engine: str
    blocks: int | None
    stored: int = 0
    removed: int = 0
    cleared: bool = False


@dataclass(frozen=True, slots=True)
class EngineWentUp:
    info: EngineInfo


@dataclass(frozen=True, slots=True)
class EngineWentDown:
    engine: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineLeft:
    """An engine is no longer this worker's, because `reason`: it is granted nothing any more, and what runs there goes
    on."""

    engine: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineReturned:
    """An engine that had left is this worker's again, before it was released."""

    engine: str


@dataclass(frozen=True, slots=True)
class CycleTicked:
    """A cycle is due: the agent regulates B_token, checks for expired controls, reports, and runs the pump in case an
    earlier event did not."""


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The next heartbeat is due."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """The worker is shutting down: it grants nothing any more and says so to its gateways, which take their requests
    elsewhere; what it granted goes on without it."""


WorkerEvent = (
    GatewayConnected
    | FromGateway
    | GatewayLost
    | EngineSampled
    | KvCacheCounted
    | EngineWentUp
    | EngineWentDown
    | EngineLeft
    | EngineReturned
    | TopologyReceived
    | LayoutReceived
    | TupleReceived
    | CycleTicked
    | HeartbeatDue
    | DrainStarted
)

# --- effects: what to do (imperative) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToGateway:
    """Send a message to a gateway; it is dropped if the gateway's stream is closed."""

    gateway: str
    message: WorkerMessage


@dataclass(frozen=True, slots=True)
class SteerEngine:
    """Pass the limits in force to an engine that obeys them: vLLM with the plug-in reads both from its control block,
    SGLang takes N_run as its live cap over HTTP. Other engines ignore it."""

    engine: str
    n_run: int
    b_token: int


@dataclass(frozen=True, slots=True)
class ReleaseEngine:
    """Watch an engine that had left no longer: nothing of this worker runs there, or its grace is over."""

    engine: str


@dataclass(frozen=True, slots=True)
class PublishTelemetry:
    telemetry: WorkerTelemetry


@dataclass(frozen=True, slots=True)
class PublishHeartbeat:
    heartbeat: WorkerHeartbeat


@dataclass(frozen=True, slots=True)
class TopologySwitched:
    """Record in logs and metrics that the worker switched its topology."""

    before: TopologyName
    after: TopologyName
    queued: int
    reason: str


@dataclass(frozen=True, slots=True)
class TopologyUnknown:
    """Record in logs and metrics that this worker has no topology of the name that was decided, and uses `instead`."""

    topology: TopologyName
    instead: TopologyName


@dataclass(frozen=True, slots=True)
class TopologyFailed:
    """Record in logs and metrics that an order of a package raised, was slow or answered what it may not. This worker
    uses `instead` until it starts again. `reason` says in words what the order did, and in which line."""

    topology: TopologyName
    instead: TopologyName
    reason: str


@dataclass(frozen=True, slots=True)
class LayoutSwitched:
    """Record in logs and metrics that the worker's engines are laid out by other pace classes, or that a class was
    merged with its neighbour or has engines again. `lanes` is the number of queues that requests wait in now."""

    before: Layout
    after: Layout
    lanes: int
    queued: int


@dataclass(frozen=True, slots=True)
class EngineSuspected:
    """Record in the log that an engine is suspected to have stopped, because `reason`; or that it is no longer, because
    it gave a token."""

    engine: str
    suspected: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EngineSlept:
    """Record in the log that somebody has put an engine to sleep, at that level, or to another one; None: it is awake
    again."""

    engine: str
    sleep_level: int | None


@dataclass(frozen=True, slots=True)
class EnginesUnpaired:
    """Record in the log that an engine which came up is never paired with `others`, although they hand KV over as well:
    not in the `way` that it does."""

    engine: str
    way: str
    others: tuple[tuple[str, str], ...]  # each with its own way


@dataclass(frozen=True, slots=True)
class ControlExpired:
    """Record that a control value has expired, so that the safe default is in force."""

    control: str  # topology | tuple


WorkerEffect = (
    ToGateway
    | SteerEngine
    | ReleaseEngine
    | PublishTelemetry
    | PublishHeartbeat
    | TopologySwitched
    | TopologyUnknown
    | TopologyFailed
    | LayoutSwitched
    | EngineSuspected
    | EngineSlept
    | EnginesUnpaired
    | ControlExpired
)
