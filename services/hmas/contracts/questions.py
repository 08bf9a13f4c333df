"""Events and effects of the gateway's queue of questions to cognition.

The queue decides when requests are sent to perception and prediction: it gathers questions into batches, spaces the
batches in time, and answers each question exactly once, by `AnnotateBatch` or by `FallBack`.
"""

from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.gateway import FromWorker, RequestAnnotated, StreamChanged, ViewReceived
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Cost, Request, Tags

# --- events ------------------------------------------------------------------------------------------------------


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
    """Prediction answered call number `call`; `costs` are in the order of its queries, of each in the
    order of its kinds, and not checked yet."""

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
    | FromWorker
    | ViewReceived
    | StreamChanged
    | TimerTicked
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartBatchAt:
    """Post `BatchDue` at the instant `at_s`, or at once if it has passed. Only one is pending at a time."""

    at_s: float


@dataclass(frozen=True, slots=True)
class AskPerception:
    call: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindQuery:
    """A kind of engine for which a request's cost is asked, and a worker that has such engines: the request's own if it
    does. `running` and `waiting` are requests of an average engine there; `kv_usage` is in [0, 1]."""

    kind: EngineKind
    worker: str
    running: int
    waiting: int
    kv_usage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionQuery:
    """A question for prediction, with the request's tags: what it costs on each of the `kinds` of engines of its pool,
    at least one and at most `MAX_KINDS`. `pool` names the model of those whose kind names none."""

    question: Question
    tags: Tags
    pool: str
    kinds: tuple[KindQuery, ...]


@dataclass(frozen=True, slots=True)
class AskPrediction:
    call: int
    queries: tuple[PredictionQuery, ...]


@dataclass(frozen=True, slots=True)
class AnnotateBatch:
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


CognitionQueueEffect = StartBatchAt | AskPerception | AskPrediction | AnnotateBatch | FallBack
