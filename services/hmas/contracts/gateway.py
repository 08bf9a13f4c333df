"""Events and effects of the gateway's two pure halves: its agent, and the queue of its questions to cognition.

The shell parses HTTP, keeps bodies and sockets by request id, and relays token bytes; the agent decides about routing,
limits and the settlement of every request. What the cognition queue decides is told beside its events below.
"""

from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Annotation, Cost, Request, Tags
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.views import VShort
from hmas.contracts.worker import Timeline

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """A tenant's bounds; None means unbounded. Rates per minute."""

    tenant: str
    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    max_in_flight: int | None = None
    max_queued: int | None = None


@dataclass(frozen=True, slots=True)
class TenantsChanged:
    limits: tuple[TenantLimits, ...]


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """`content` is the same if a tenant sends the same request again; empty where that makes no difference.
    `body_bytes`: what the shell keeps for the request until its first token."""

    request: Request
    content: str = ""
    body_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RequestAnnotated:
    """Cognition answered (or the prior stood in). `annotation.tags.slo` is the SLO the request is judged by."""

    request_id: str
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class ClientLeft:
    request_id: str


@dataclass(frozen=True, slots=True)
class WorkerVanished:
    """Its stream stayed broken past the grace time, its heartbeats stopped, or it came back as another process."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The worker is connected (true) or its stream is broken for now (false: no new work, requests are kept)."""

    worker: str
    connected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReported:
    """A worker told its load on the stream, between heartbeats. Fields as in `WorkerHeartbeat`."""

    worker: str
    queued: int
    queued_tokens: int
    running: int
    backlog_s: float
    draining: bool


@dataclass(frozen=True, slots=True)
class FirstTokenRelayed:
    """The first token of a streamed answer reached the gateway."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptConcluded:
    """The worker finished with an attempt. Latencies are since the request's arrival at the gateway."""

    request_id: str
    attempt: int
    outcome: Outcome
    message: str
    output_tokens: int = 0
    prompt_tokens: int | None = None
    tpot_s: float = 0.0
    retry_after_s: float | None = None
    timeline: Timeline | None = None


@dataclass(frozen=True, slots=True)
class AttemptHandedBack:
    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ViewReceived:
    view: VShort


@dataclass(frozen=True, slots=True)
class GatewayTicked:
    """Telemetry, time-outs, rebalancing."""


@dataclass(frozen=True, slots=True)
class GatewayDraining:
    """No new requests; those accepted go on."""


@dataclass(frozen=True, slots=True)
class GatewayDrainExpired:
    """The grace time is over: what is left is cancelled and settled."""


GatewayEvent = (
    TenantsChanged
    | RequestReceived
    | RequestAnnotated
    | ClientLeft
    | HeartbeatReceived
    | WorkerVanished
    | StreamChanged
    | LoadReported
    | FirstTokenRelayed
    | AttemptConcluded
    | AttemptHandedBack
    | ViewReceived
    | GatewayTicked
    | GatewayDraining
    | GatewayDrainExpired
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendSubmit:
    """`promised`: it was refused before and comes back when it was told to."""

    request_id: str
    worker: str
    attempt: int
    promised: bool = False


@dataclass(frozen=True, slots=True)
class SendAnnotate:
    request_id: str
    worker: str
    attempt: int
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class SendCancel:
    request_id: str
    worker: str
    attempt: int


@dataclass(frozen=True, slots=True)
class SendRecall:
    request_id: str
    worker: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Answer with the outcome's error object. Emitted with the request's settlement already accounted."""

    request_id: str
    outcome: Outcome
    message: str
    retry_after_s: float | None
    predicted_ttft_s: float | None
    estimated_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """The request ended; the shell closes its response (error event or error object if not finished)."""

    request_id: str
    outcome: Outcome
    message: str
    output_tokens: int
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class PublishGatewayTelemetry:
    telemetry: GatewayTelemetry


GatewayEffect = SendSubmit | SendAnnotate | SendCancel | SendRecall | Refuse | Settle | PublishGatewayTelemetry

# --- the cognition queue: events -----------------------------------------------------------------------------------
# It batches questions, spaces the batches, and answers each question exactly once: by `Annotate` or by `FallBack`.


@dataclass(frozen=True, slots=True)
class Question:
    """One request, the text perception sees, and the worker the request went to."""

    request: Request
    text: str
    worker: str


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    question: Question


@dataclass(frozen=True, slots=True)
class QuestionWithdrawn:
    """The request ended: it needs no tags any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class BatchDue:
    """The instant of the last `StartBatchAt` is here."""


@dataclass(frozen=True, slots=True)
class PerceptionAnswered:
    """`tags` in the order of the call's questions, as they came."""

    call: int
    tags: tuple[Tags, ...]


@dataclass(frozen=True, slots=True)
class PredictionAnswered:
    """`costs` in the order of the call's queries, as they came."""

    call: int
    costs: tuple[Cost, ...]


class FallbackReason(StrEnum):
    """Why a request is left to the prior."""

    OFF = "off"
    DOWN = "down"  # the service cannot be reached, failed, or failed a moment ago
    FULL = "full"
    ENDED = "ended"  # the request ended while its question waited
    LATE = "late"
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True)
class CognitionFailed:
    """A call of either service brought no answer. `error` is text for the log."""

    call: int
    reason: FallbackReason
    error: str


CognitionQueueEvent = (
    QuestionAsked
    | QuestionWithdrawn
    | BatchDue
    | PerceptionAnswered
    | PredictionAnswered
    | CognitionFailed
    | HeartbeatReceived
    | LoadReported
    | ViewReceived
    | WorkerVanished
    | TimerTicked
)

# --- the cognition queue: effects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartBatchAt:
    """Post `BatchDue` at `at_s`; it may have passed. There is one at a time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class AskPerception:
    call: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionQuery:
    """A question with its tags and what prediction wants to know of the worker. Counts are a mean engine's."""

    question: Question
    tags: Tags
    hardware: str
    running: int
    waiting: int
    kv_usage: float


@dataclass(frozen=True, slots=True)
class AskPrediction:
    call: int
    queries: tuple[PredictionQuery, ...]


@dataclass(frozen=True, slots=True)
class Annotate:
    """A batch's answers, `took_s` after it was sent to perception."""

    answers: tuple[RequestAnnotated, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class FallBack:
    """No annotation: everyone downstream falls back to the prior. `error` is set where a call failed."""

    request_ids: tuple[str, ...]
    reason: FallbackReason
    error: str = ""


CognitionQueueEffect = StartBatchAt | AskPerception | AskPrediction | Annotate | FallBack
