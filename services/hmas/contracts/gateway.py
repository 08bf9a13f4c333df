"""Events and effects of the gateway's two pure parts: its agent, and its queue of questions to cognition.

The agent decides about routing, limits and the settlement of every request. The cognition queue decides when requests
are sent to perception and prediction. The shell parses HTTP, keeps bodies and sockets by request id, and relays the
bytes of answers.
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
    """The limits of one tenant; None means unlimited."""

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
    """A client sent a request. `content` identifies what the tenant sent, so that the same request is recognised when
    it is sent again; it is empty where that makes no difference. `body_bytes` is the size of the body that the shell
    keeps until the first token."""

    request: Request
    content: str = ""
    body_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RequestAnnotated:
    """Cognition answered for a request. `annotation.tags.slo` is the SLO by which the request is judged."""

    request_id: str
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """The client closed its connection before its answer ended."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WorkerVanished:
    """A worker is gone: its stream stayed broken past the grace time, its heartbeats stopped, or it came back as
    another process."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The stream to a worker was connected (true) or broke (false: the worker gets no new requests, but keeps those
    that it has)."""

    worker: str
    connected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReported:
    """A worker reported its load on the stream, between two heartbeats. The fields are those of `WorkerHeartbeat`."""

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
    """A worker ended an attempt, with its outcome. `prompt_tokens` is the engine's own count, None if it gave none;
    `retry_after_s` None means that a retry cannot help; `timeline` is None if the worker refused the request."""

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
    """A worker returned a request that it had not dispatched, for another worker."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ViewReceived:
    view: VShort


@dataclass(frozen=True, slots=True)
class GatewayTicked:
    """Time has passed: telemetry, time-outs and moves of requests to other workers may be due."""


@dataclass(frozen=True, slots=True)
class GatewayDraining:
    """The gateway is shutting down: it takes no new requests, and those it accepted go on."""


@dataclass(frozen=True, slots=True)
class GatewayDrainExpired:
    """The grace time of the shutdown is over: the remaining requests are cancelled and settled."""


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
    """Send a request to a worker. `promised` is true if it was refused before with a promise and the client sent it
    again at the promised time."""

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
    """Refuse a request at its arrival: answer with the error object of `outcome`. The agent has already settled it.
    Times are in s; None means that nothing can be said."""

    request_id: str
    outcome: Outcome
    message: str
    retry_after_s: float | None
    predicted_ttft_s: float | None
    estimated_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """End the response of a request that was accepted; if `outcome` is not FINISHED, with an error event or object."""

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
# The queue gathers questions into batches, spaces the batches in time, and answers each question exactly once: by
# `Annotate` or by `FallBack`.


@dataclass(frozen=True, slots=True)
class Question:
    """A request that needs tags and a cost, with the text that perception reads and the worker that has the request."""

    request: Request
    text: str
    worker: str


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    question: Question


@dataclass(frozen=True, slots=True)
class QuestionWithdrawn:
    """A request ended, so that its question needs no answer any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class BatchDue:
    """The instant that the last `StartBatchAt` asked for has come."""


@dataclass(frozen=True, slots=True)
class PerceptionAnswered:
    """Perception answered call number `call`; `tags` are in the order of its questions and not checked yet."""

    call: int
    tags: tuple[Tags, ...]


@dataclass(frozen=True, slots=True)
class PredictionAnswered:
    """Prediction answered call number `call`; `costs` are in the order of its queries and not checked yet."""

    call: int
    costs: tuple[Cost, ...]


class FallbackReason(StrEnum):
    """Why cognition does not annotate a request, so that the prior is used."""

    OFF = "off"  # cognition is switched off
    DOWN = "down"  # the service cannot be reached, failed, or failed a moment ago
    FULL = "full"  # too many questions wait
    ENDED = "ended"  # the request ended while its question waited
    LATE = "late"  # no answer within the time limit
    MALFORMED = "malformed"  # the answer does not fit the question


@dataclass(frozen=True, slots=True)
class CognitionFailed:
    """Call number `call`, to perception or prediction, brought no answer. `error` is text for the log."""

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
    """Post `BatchDue` at the instant `at_s`, or at once if it has passed. Only one is pending at a time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class AskPerception:
    call: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionQuery:
    """A question for prediction: with the request's tags and the state of its worker. `running` and `waiting` are
    requests of an average engine of that worker; `kv_usage` is in [0, 1]."""

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
    """Pass on the annotations of a batch, which came `took_s` seconds after it was sent to perception."""

    answers: tuple[RequestAnnotated, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class FallBack:
    """Leave these requests without annotation; worker and gateway then use the prior. `error` is set if a call
    failed."""

    request_ids: tuple[str, ...]
    reason: FallbackReason
    error: str = ""


CognitionQueueEffect = StartBatchAt | AskPerception | AskPrediction | Annotate | FallBack
