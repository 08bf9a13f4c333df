"""The queue of questions to perception and prediction. No request waits for it.

A question joins the batch that is being gathered. The batch starts `gather_s` after its first question, because until
then the request itself is being submitted on the same cores, and at least `interval_s` after the batch before it
started, or `idle_interval_s` while no request waits at any worker: tags then order nothing and only feed statistics.
At most `batches_in_flight` batches are out at once. Questions are batched because a call costs the same for one request
as for thirty, and more than relaying fifty tokens. A request falls back to the prior if the answer is late or
malformed, if the service is down, or if the queue is full.
"""

from dataclasses import dataclass, replace
from itertools import islice
from math import inf, isfinite
from typing import assert_never

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.execution import Load
from hmas.contracts.gateway import FromWorker, RequestAnnotated, StreamChanged, ViewReceived
from hmas.contracts.questions import (
    AnnotateBatch,
    AskPerception,
    AskPrediction,
    BatchDue,
    CognitionFailed,
    CognitionQueueEffect,
    CognitionQueueEvent,
    FallBack,
    FallbackReason,
    PerceptionAnswered,
    PredictionAnswered,
    PredictionQuery,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    StartBatchAt,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Annotation, Cost, KindCost, Request, Tags
from hmas.gateway.agent.questions.worker_facts import WorkerFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CognitionQueueConfig:
    """Bounds of the cognition queue; durations in seconds.

    `interval_s`, `idle_interval_s`: least time between the starts of two batches while requests wait at a worker, and
    while none does. `gather_s`: least time from a batch's first question to its start. `timeout_s`: time that each call
    may take, enforced by the shell; the agent gives a call up if the shell reports nothing for `silence_s` longer.
    `pause_s`: how long no question is asked after a service could not be reached. `batch`: most questions in a batch.
    `queue`: most questions that wait.
    """

    timeout_s: float = 0.05
    silence_s: float = 1.0
    interval_s: float = 0.04
    idle_interval_s: float = 0.12
    gather_s: float = 0.004
    batch: int = 32
    batches_in_flight: int = 2
    queue: int = 1024
    pause_s: float = 0.5


class _Malformed(ValueError):
    """Cognition answered with the wrong number of answers or with values that make no sense."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Questions that were sent to cognition. `queries` is empty until perception has answered; then one for each.

    `started_s`, `deadline_s`: instants on the agent's clock.
    """

    questions: tuple[Question, ...]
    started_s: float
    deadline_s: float
    queries: tuple[PredictionQuery, ...] = ()


class CognitionQueue:
    """The agent that decides which questions go to cognition and when; it needs a `TimerTicked` a few times a second.

    Each question ends exactly once, in an `AnnotateBatch` or a `FallBack`. At most `queue` questions wait, and at most
    `batches_in_flight` batches of at most `batch` questions are out. Answers to calls that have ended change nothing.
    If `enabled` is false, every question falls back at once. `step` raises ValueError if a question about a request is
    asked while an earlier one about it still waits.
    """

    def __init__(self, config: CognitionQueueConfig, *, enabled: bool = True) -> None:
        self._config, self._enabled = config, enabled
        self._facts = WorkerFacts()
        self._waiting: dict[str, Question] = {}  # by request, oldest first
        self._perceiving: dict[int, _Batch] = {}  # by call
        self._predicting: dict[int, _Batch] = {}
        self._last_call = 0
        self._start_scheduled = False
        self._started_s = -inf
        self._paused_until_s = -inf

    def step(self, now_s: float, event: CognitionQueueEvent) -> list[CognitionQueueEffect]:
        match event:
            case QuestionAsked(question):
                return self._ask(now_s, question)
            case QuestionWithdrawn(request_id):
                withdrawn = self._waiting.pop(request_id, None)
                return [] if withdrawn is None else [FallBack((request_id,), FallbackReason.ENDED)]
            case BatchDue():
                return self._start(now_s)
            case PerceptionAnswered(call, tags):
                return self._perceived(now_s, call, tags)
            case PredictionAnswered(call, costs):
                return self._predicted(now_s, call, costs)
            case CognitionFailed(call, reason, error):
                return self._failed(now_s, call, reason, error)
            case TimerTicked():
                return self._expire(now_s)
            case HeartbeatReceived(heartbeat):
                self._facts.hear(heartbeat)
            case FromWorker(worker, message):
                if isinstance(message, Load):
                    self._facts.load(worker, message)
            case ViewReceived(view):
                self._facts.see(view)
            case StreamChanged(worker, connected):
                if not connected:
                    self._facts.forget(worker)
            case _:
                assert_never(event)
        return []

    # --- gathering ---

    def _ask(self, now_s: float, question: Question) -> list[CognitionQueueEffect]:
        request_id = question.request.id
        if request_id in self._waiting:
            raise ValueError(f"a question about request {request_id} already waits: ask once for each request")
        reason = self._refusal(now_s)
        if reason is not None:
            return [FallBack((request_id,), reason)]
        self._waiting[request_id] = question
        return self._schedule(now_s)

    def _refusal(self, now_s: float) -> FallbackReason | None:
        if not self._enabled:
            return FallbackReason.OFF
        if now_s < self._paused_until_s:
            return FallbackReason.DOWN
        return FallbackReason.FULL if len(self._waiting) >= self._config.queue else None

    def _schedule(self, now_s: float) -> list[CognitionQueueEffect]:
        """Schedules the start of the next batch, unless one is scheduled already, no question waits, or
        `batches_in_flight` batches are out."""
        in_flight = len(self._perceiving) + len(self._predicting)
        if self._start_scheduled or not self._waiting or in_flight >= self._config.batches_in_flight:
            return []
        self._start_scheduled = True
        if len(self._waiting) >= self._config.batch:
            return [StartBatchAt(now_s)]
        interval_s = self._config.interval_s if self._facts.queueing else self._config.idle_interval_s
        return [StartBatchAt(max(now_s + self._config.gather_s, self._started_s + interval_s))]

    def _start(self, now_s: float) -> list[CognitionQueueEffect]:
        if not self._start_scheduled:
            return []
        self._start_scheduled = False
        questions = tuple(islice(self._waiting.values(), self._config.batch))
        if not questions:
            return []  # all of them were withdrawn
        self._started_s = now_s
        for question in questions:
            del self._waiting[question.request.id]
        call = self._next_call()
        self._perceiving[call] = _Batch(questions, now_s, self._deadline_s(now_s))
        return [AskPerception(call, questions)]

    def _next_call(self) -> int:
        self._last_call += 1
        return self._last_call

    def _deadline_s(self, now_s: float) -> float:
        return now_s + self._config.timeout_s + self._config.silence_s

    # --- answers ---

    def _perceived(self, now_s: float, call: int, tags: tuple[Tags, ...]) -> list[CognitionQueueEffect]:
        batch = self._perceiving.pop(call, None)
        if batch is None:
            return []
        try:
            _check_count(len(tags), len(batch.questions))
            sound = tuple(_sound_tags(q.request, each) for q, each in zip(batch.questions, tags, strict=True))
        except _Malformed as error:
            return self._fall_back(now_s, batch, FallbackReason.MALFORMED, str(error))
        queries = tuple(self._facts.query(q, each) for q, each in zip(batch.questions, sound, strict=True))
        call = self._next_call()
        self._predicting[call] = replace(batch, queries=queries, deadline_s=self._deadline_s(now_s))
        return [AskPrediction(call, queries)]

    def _predicted(self, now_s: float, call: int, costs: tuple[Cost, ...]) -> list[CognitionQueueEffect]:
        batch = self._predicting.pop(call, None)
        if batch is None:
            return []
        try:
            _check_count(len(costs), sum([len(query.kinds) for query in batch.queries]))
            sound = map(_sound_cost, costs)
            answers = tuple(
                RequestAnnotated(
                    query.question.request.id,
                    Annotation(query.tags, tuple([KindCost(asked.kind, next(sound)) for asked in query.kinds])),
                )
                for query in batch.queries
            )
        except _Malformed as error:
            return self._fall_back(now_s, batch, FallbackReason.MALFORMED, str(error))
        return [AnnotateBatch(answers, now_s - batch.started_s), *self._schedule(now_s)]

    def _failed(self, now_s: float, call: int, reason: FallbackReason, error: str) -> list[CognitionQueueEffect]:
        batch = self._perceiving.pop(call, None) or self._predicting.pop(call, None)
        if batch is None:
            return []
        if reason is FallbackReason.DOWN:
            self._paused_until_s = now_s + self._config.pause_s
        return self._fall_back(now_s, batch, reason, error)

    def _expire(self, now_s: float) -> list[CognitionQueueEffect]:
        effects: list[CognitionQueueEffect] = []
        for calls in (self._perceiving, self._predicting):
            for call in [c for c, batch in calls.items() if now_s >= batch.deadline_s]:
                effects += self._fall_back(now_s, calls.pop(call), FallbackReason.LATE, "the call was given up")
        return effects

    def _fall_back(self, now_s: float, batch: _Batch, reason: FallbackReason, error: str) -> list[CognitionQueueEffect]:
        request_ids = tuple(question.request.id for question in batch.questions)
        return [FallBack(request_ids, reason, error), *self._schedule(now_s)]


def _check_count(answers: int, questions: int) -> None:
    if answers != questions:
        raise _Malformed(f"cognition sent {answers} answers to {questions} questions")


def _sound_tags(request: Request, tags: Tags) -> Tags:
    """Returns `tags` with the SLO that the request is judged by: the stated one if there is one. `slo.whole` (only the
    last token counts) comes from the request. Raises _Malformed for values that are not finite and positive."""
    slo = request.slo if request.slo_stated else replace(tags.slo, whole=request.slo.whole)
    numbers = (tags.output_tokens, tags.output_tokens_p90, tags.confidence, slo.ttft_s, slo.tpot_s)
    if not all(map(isfinite, numbers)) or min(numbers[0], numbers[1], slo.ttft_s, slo.tpot_s) <= 0.0:
        raise _Malformed(f"perception sent lengths or SLOs that are not finite and positive: {tags}")
    return replace(tags, slo=slo)


def _sound_cost(cost: Cost) -> Cost:
    if not (isfinite(cost.ttft_s) and isfinite(cost.tpot_s) and cost.ttft_s >= 0.0 and cost.tpot_s >= 0.0):
        raise _Malformed(f"prediction sent a cost that is not finite and at least 0: {cost}")
    return cost
