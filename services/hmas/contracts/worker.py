"""The events and effects of the worker agent, some of which travel on the stream between gateway and worker.

The wire, the live worker and the simulator all use them. They never hold a request's body or the bytes of an answer:
the shell keeps those by request id.
"""

from dataclasses import dataclass

from hmas.contracts.control import TopologyName, TopologyReceived, TupleReceived
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.contracts.request import Annotation, Request
from hmas.contracts.telemetry import WorkerTelemetry

# --- events: what happened (past tense) -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """A gateway sent a request. `request.arrival_s` is already on this host's clock. `promised` is true if the request
    was refused before with a promise and came again at the promised time."""

    request: Request
    attempt: int
    gateway: str
    promised: bool = False


@dataclass(frozen=True, slots=True)
class Annotated:
    request_id: str
    attempt: int
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class CancelRequested:
    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class RecallRequested:
    """The gateway asked to hand a request back, unless it was dispatched already."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """A gateway's stream stayed broken past its grace time: its requests are cancelled."""

    gateway: str


@dataclass(frozen=True, slots=True)
class FirstTokenReceived:
    request_id: str


@dataclass(frozen=True, slots=True)
class ProgressSampled:
    """Pairs (request id, output tokens so far) of running requests, once per cycle rather than once per token."""

    output_tokens: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class EngineFinished:
    """The engine completed a request."""

    request_id: str
    output_tokens: int
    prompt_tokens: int | None  # the engine's own count, where it reports usage


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailed:
    """The connection to the engine broke, or the engine answered with an error. `retryable` is true if nothing was
    generated yet and another engine may serve the request; `busy` if the engine has no room now and may have later."""

    request_id: str
    outcome: Outcome
    message: str
    output_tokens: int
    retryable: bool
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSampled:
    """A sample of the engine's own metrics, or an estimate by its adapter if the engine has none."""

    engine: str
    running: int
    waiting: int
    kv_usage: float
    preemptions_total: int
    step_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class EngineWentUp:
    info: EngineInfo


@dataclass(frozen=True, slots=True)
class EngineWentDown:
    engine: str
    reason: str


@dataclass(frozen=True, slots=True)
class CycleTicked:
    """A cycle is due: the agent regulates B_token, checks for expired controls, reports, and runs the pump in case an
    earlier event did not."""


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    """The next heartbeat is due."""


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """The worker is shutting down: it takes no new requests, hands queued ones back, and finishes running ones."""


WorkerEvent = (
    Submitted
    | Annotated
    | CancelRequested
    | RecallRequested
    | GatewayLost
    | FirstTokenReceived
    | ProgressSampled
    | EngineFinished
    | EngineFailed
    | EngineSampled
    | EngineWentUp
    | EngineWentDown
    | TopologyReceived
    | TupleReceived
    | CycleTicked
    | HeartbeatDue
    | DrainStarted
)

# --- effects: what to do (imperative) ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened to a request in the worker, for `hmas why`. Times are seconds since its arrival at the worker."""

    worker: str
    engine: str
    topology: str
    queued_s: float
    first_token_s: float
    finished_s: float
    queue_length: int  # at arrival
    overtaken: int  # number of requests that arrived later and were dispatched earlier
    switches: int  # topology switches while it was in the worker
    upper_output_tokens: float
    relegated: bool


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send a request to an engine. `urgency` is its key in the active order (lower first), for engines that reorder.
    `tpot_s` is its TPOT SLO in s as far as known, for engines that limit prefill to keep decoding in pace; None if only
    its last token is judged."""

    request_id: str
    engine: str
    urgency: float
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    request_id: str
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Refuse a request that was not dispatched. `retry_after_s` None means that a retry cannot help."""

    request_id: str
    attempt: int
    gateway: str
    outcome: Outcome
    message: str
    retry_after_s: float | None


@dataclass(frozen=True, slots=True)
class Handback:
    request_id: str
    attempt: int
    gateway: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclude:
    """Tell the gateway that a request has ended at this worker."""

    request_id: str
    attempt: int
    gateway: str
    outcome: Outcome
    message: str
    output_tokens: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class SteerEngine:
    """Pass the limits in force to an engine that obeys them from inside (through the control block); an engine that is
    reached by plain HTTP ignores it."""

    engine: str
    n_run: int
    b_token: int


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
class ControlExpired:
    """Record that a control value has expired, so that the safe default is in force."""

    control: str  # topology | tuple


WorkerEffect = (
    Dispatch
    | Abort
    | Reject
    | Handback
    | Conclude
    | SteerEngine
    | PublishTelemetry
    | PublishHeartbeat
    | TopologySwitched
    | ControlExpired
)
