"""The worker agent's events and effects, and the operations that cross the gateway-worker stream.

One vocabulary for the wire, the live worker and the simulator. Bodies and token bytes are never part of a
decision: the shell keeps them by request id.
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
    """A gateway sent a request. `request.arrival_s` is already on this host's clock. `promised`: it was refused before,
    and comes back when it was told to."""

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
    """Hand it back if it was not dispatched."""

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
    """Output tokens so far of running requests, once per cycle (never one event per token)."""

    output_tokens: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class EngineFinished:
    """The engine ended a request by itself."""

    request_id: str
    output_tokens: int
    prompt_tokens: int | None  # the engine's own count, where it reports usage


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFailed:
    """The engine's connection broke or it answered an error. `retryable`: nothing was generated yet and another
    engine may serve it; `busy`: the engine has no room for it now and may have later."""

    request_id: str
    outcome: Outcome
    message: str
    output_tokens: int
    retryable: bool
    busy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSampled:
    """A scrape of the engine's own metrics, or the adapter's estimate where it has none."""

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
    """The scheduling cycle: inner loop, expiry, telemetry, and the pump's backstop."""


@dataclass(frozen=True, slots=True)
class HeartbeatDue:
    pass


@dataclass(frozen=True, slots=True)
class DrainStarted:
    """No new work; queued requests are handed back, in-flight ones finish."""


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
    """A request's walk through the worker, for `hmas why`. Durations since its arrival at the worker, seconds."""

    worker: str
    engine: str
    topology: str
    queued_s: float
    first_token_s: float
    finished_s: float
    queue_length: int  # at arrival
    overtaken: int  # requests that arrived later and were dispatched earlier
    switches: int  # topology switches it lived through
    upper_output_tokens: float
    relegated: bool


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Send to the engine. `urgency` is its rank value in the active order (lower first), for engines that reorder, and
    `tpot_s` its TPOT SLO as far as known, for engines that pace their prefill; None where the last token is judged."""

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
    """Refuse a request that was not dispatched. `retry_after_s` None: a retry cannot help."""

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
    """The request left the worker for good; the shell sends `Finished` to its gateway."""

    request_id: str
    attempt: int
    gateway: str
    outcome: Outcome
    message: str
    output_tokens: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class SteerEngine:
    """Pass the caps in force to an engine that can be steered from inside; a no-op over plain HTTP."""

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
    """For logs and metrics."""

    before: TopologyName
    after: TopologyName
    queued: int
    reason: str


@dataclass(frozen=True, slots=True)
class ControlExpired:
    """A control value ran out; the safe default is in force."""

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
