"""Whatever becomes of calls, each question ends exactly once, and nothing is left of it."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.gateway import FromWorker
from hmas.contracts.questions import (
    AnnotateBatch,
    AskPerception,
    AskPrediction,
    BatchDue,
    CognitionFailed,
    CognitionQueueEvent,
    FallBack,
    FallbackReason,
    PerceptionAnswered,
    PredictionAnswered,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    StartBatchAt,
)
from hmas.gateway.agent.questions.cognition_queue import CognitionQueue, CognitionQueueConfig
from tests.conftest import examples
from tests.gateway.gateway_script import annotation, load, request

CONFIG = CognitionQueueConfig(batch=3, batches_in_flight=2, queue=5, pause_s=0.2, silence_s=0.3)
INDEX = st.one_of(st.just(0), st.integers(0, 10_000))
MISSING = st.sampled_from([0, 0, 0, 1])  # answers
FAILURES = st.sampled_from([FallbackReason.LATE, FallbackReason.DOWN, FallbackReason.MALFORMED])


class CognitionMachine(RuleBasedStateMachine):
    """Calls stay in `calls` after they were answered, so that answers come late, twice, in any order or never."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = CognitionQueue(CONFIG)
        self.now_s = 0.0
        self.asked: list[str] = []
        self.ended: dict[str, FallbackReason | None] = {}  # None: annotated
        self.calls: dict[int, tuple[str, int]] = {}  # the service, and how many questions
        self.due_s: float | None = None
        self.starts: list[float] = []
        self.sent_s: dict[str, float] = {}  # to perception, by request

    def play(self, event: CognitionQueueEvent) -> None:
        for effect in self.queue.step(self.now_s, event):
            match effect:
                case StartBatchAt(at_s):
                    assert self.due_s is None, "two starts at a time"
                    self.due_s = at_s
                    if self.starts and len(self.queue._waiting) < CONFIG.batch:
                        assert at_s >= self.starts[-1] + CONFIG.interval_s
                case AskPerception(call, questions):
                    assert 0 < len(questions) <= CONFIG.batch
                    self.remember("perception", call, [each.request.id for each in questions])
                    self.starts.append(self.now_s)
                    self.sent_s |= dict.fromkeys((each.request.id for each in questions), self.now_s)
                case AskPrediction(call, queries):
                    self.remember("prediction", call, [each.question.request.id for each in queries])
                case AnnotateBatch(answers, took_s):
                    for answer in answers:
                        assert took_s == self.now_s - self.sent_s[answer.request_id]
                        self.end(answer.request_id, None)
                case FallBack(request_ids, reason):
                    for request_id in request_ids:
                        self.end(request_id, reason)

    def remember(self, service: str, call: int, request_ids: list[str]) -> None:
        assert call not in self.calls, "a number of a call used twice"
        assert not self.ended.keys() & set(request_ids)
        self.calls[call] = (service, len(request_ids))

    def end(self, request_id: str, reason: FallbackReason | None) -> None:
        assert request_id in self.asked
        assert request_id not in self.ended, "ended twice"
        self.ended[request_id] = reason

    def call(self, index: int) -> int:
        """The latest for 0, then older ones; the last is one that was never made."""
        return len(self.calls) - index % (len(self.calls) + 1)

    @rule(count=st.integers(1, 4))
    def ask(self, count: int) -> None:
        for _ in range(count):
            request_id = f"r{len(self.asked)}"
            self.asked.append(request_id)
            self.play(QuestionAsked(Question(request(request_id), "", "w1")))

    @rule(index=INDEX)
    def withdraw(self, index: int) -> None:
        self.play(QuestionWithdrawn(f"r{index % (len(self.asked) + 1)}"))

    @rule()
    def reach_the_start(self) -> None:
        if self.due_s is not None:
            self.now_s, self.due_s = max(self.now_s, self.due_s), None
        self.play(BatchDue())

    @rule(index=INDEX, missing=MISSING)
    def perceive(self, index: int, missing: int) -> None:
        call = self.call(index)
        self.play(PerceptionAnswered(call, (annotation().tags,) * (self.calls.get(call, ("", 1))[1] - missing)))

    @rule(index=INDEX, missing=MISSING)
    def predict(self, index: int, missing: int) -> None:
        call = self.call(index)
        self.play(
            PredictionAnswered(call, (annotation().costs[0].cost,) * (self.calls.get(call, ("", 1))[1] - missing))
        )

    @rule(index=INDEX, reason=FAILURES)
    def fail(self, index: int, reason: FallbackReason) -> None:
        self.play(CognitionFailed(self.call(index), reason, "why"))

    @rule(queued=st.integers(0, 1))
    def report_load(self, queued: int) -> None:
        self.play(FromWorker("w1", load(queued=queued)))

    @rule(delta_s=st.sampled_from([0.0, 0.01, 0.1, 0.4]))
    def tick(self, delta_s: float) -> None:
        self.now_s += delta_s
        self.play(TimerTicked())

    @invariant()
    def what_waits_and_what_is_out_is_bounded(self) -> None:
        queue: Any = self.queue
        batches = [*queue._perceiving.values(), *queue._predicting.values()]
        assert len(queue._waiting) <= CONFIG.queue
        assert len(batches) <= CONFIG.batches_in_flight
        assert len(queue._waiting) + sum(len(b.questions) for b in batches) == len(self.asked) - len(self.ended)

    @invariant()
    def what_waits_has_a_start_or_a_batch_to_wait_for(self) -> None:
        queue: Any = self.queue
        assert not queue._waiting or self.due_s is not None or queue._perceiving or queue._predicting

    def teardown(self) -> None:
        """No call is answered any more: what is out is given up, what waits starts, and is given up."""
        for _ in range(10):
            self.reach_the_start()
            self.tick(CONFIG.timeout_s + CONFIG.silence_s)
        assert set(self.ended) == set(self.asked)
        assert not self.queue._waiting
        assert not self.queue._perceiving
        assert not self.queue._predicting


CognitionMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestCognitionQueue = CognitionMachine.TestCase
