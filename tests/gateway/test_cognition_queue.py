"""Scripts of events, and the exact effects of each."""

from dataclasses import replace
from math import nan
from typing import Any

import pytest

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.engine_kind import MAX_KINDS, EngineKind
from hmas.contracts.gateway import FromWorker, RequestAnnotated, StreamChanged
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
    KindQuery,
    PerceptionAnswered,
    PredictionAnswered,
    PredictionQuery,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    StartBatchAt,
)
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Annotation, Cost, KindCost, Slo, Tags
from hmas.gateway.agent.questions.cognition_queue import CognitionQueue, CognitionQueueConfig
from tests.builders.requests import model_tags
from tests.gateway.gateway_script import grant, heartbeat, load, request

UNSOUND_TAGS = "perception sent lengths or SLOs that are not finite and positive"
TAGS = model_tags(output_tokens_p90=90.0, confidence=0.8, version="v7")
STATED = replace(TAGS, slo=request().slo)  # what becomes of `TAGS` where the request states its SLO
COST = Cost(0.2, 0.01)
COSTS = (KindCost(EngineKind(), COST),)
CONFIG = CognitionQueueConfig(
    timeout_s=0.05, silence_s=1.0, interval_s=0.04, idle_interval_s=0.12, gather_s=0.004, batch=2,
    batches_in_flight=1, queue=3, pause_s=0.5,
)  # fmt: skip


def question(request_id: str) -> Question:
    return Question(request(request_id), f"text of {request_id}", "w1")


def kind(hardware: str, worker: str = "w1", running: int = 0, waiting: int = 0) -> KindQuery:
    return KindQuery(kind=EngineKind("", hardware), worker=worker, running=running, waiting=waiting, kv_usage=0.0)


def query(request_id: str, tags: Tags = STATED, *kinds: KindQuery) -> PredictionQuery:
    """Without `kinds`, of a worker nobody told of."""
    return PredictionQuery(
        question=question(request_id),
        tags=tags,
        pool="m",
        kinds=kinds or (kind(""),),
    )


Step = tuple[float, CognitionQueueEvent, list[CognitionQueueEffect]]


def play(*script: Step, config: CognitionQueueConfig = CONFIG, enabled: bool = True) -> None:
    queue = CognitionQueue(config, enabled=enabled)
    for now_s, event, effects in script:
        assert queue.step(now_s, event) == effects, (now_s, event)


def asked(now_s: float, request_id: str, *effects: CognitionQueueEffect) -> Step:
    return now_s, QuestionAsked(question(request_id)), list(effects)


def started(now_s: float, call: int, *request_ids: str) -> Step:
    return now_s, BatchDue(), [AskPerception(call, tuple(map(question, request_ids)))]


def perceived(now_s: float, call: int, *request_ids: str) -> Step:
    """Perception answers `call`, and prediction is asked in the next one."""
    return now_s, PerceptionAnswered(call, (TAGS,) * len(request_ids)), [
        AskPrediction(call + 1, tuple(map(query, request_ids)))
    ]  # fmt: skip


def predicted(now_s: float, call: int, took_s: float, *request_ids: str) -> Step:
    answers = tuple(RequestAnnotated(each, Annotation(STATED, COSTS)) for each in request_ids)
    return now_s, PredictionAnswered(call, (COST,) * len(request_ids)), [AnnotateBatch(answers, took_s)]


def test_a_batch_gathers_and_is_annotated() -> None:
    play(
        asked(1.0, "a", StartBatchAt(1.004)),
        asked(1.001, "b"),
        started(1.004, 1, "a", "b"),
        perceived(1.25, 1, "a", "b"),
        predicted(1.504, 2, 0.5, "a", "b"),
    )


def test_batches_keep_their_distance_while_requests_queue_and_a_longer_one_while_none_does() -> None:
    reported = FromWorker("w1", load(queued=1, queued_tokens=100, running=1, backlog_s=0.1))
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        perceived(0.005, 1, "a"),
        predicted(0.006, 2, 0.002, "a"),
        asked(0.01, "b", StartBatchAt(0.004 + 0.12)),
        started(0.124, 3, "b"),
        perceived(0.125, 3, "b"),
        predicted(0.126, 4, 0.126 - 0.124, "b"),
        (0.13, FromWorker("w1", grant()), []),
        (0.13, reported, []),
        asked(0.14, "c", StartBatchAt(0.124 + 0.04)),
    )


def test_a_full_batch_does_not_wait() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        asked(0.005, "b"),
        asked(0.006, "c"),
        asked(0.007, "d"),
        (0.008, CognitionFailed(1, FallbackReason.LATE, "late"), [
            FallBack(("a",), FallbackReason.LATE, "late"), StartBatchAt(0.008),
        ]),
        started(0.008, 2, "b", "c"),
    )  # fmt: skip


def test_the_queue_is_bounded() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        asked(0.0, "b"),
        asked(0.0, "c"),
        asked(0.0, "d", FallBack(("d",), FallbackReason.FULL)),
    )


def test_a_question_that_waits_may_be_withdrawn_and_one_that_is_out_may_not() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        asked(0.0, "b"),
        (0.001, QuestionWithdrawn("a"), [FallBack(("a",), FallbackReason.ENDED)]),
        (0.001, QuestionWithdrawn("a"), []),
        started(0.004, 1, "b"),
        (0.005, QuestionWithdrawn("b"), []),
        perceived(0.006, 1, "b"),
        predicted(0.254, 2, 0.25, "b"),
    )


def test_a_start_without_questions_asks_nothing() -> None:
    play(
        (0.0, BatchDue(), []),
        asked(0.0, "a", StartBatchAt(0.004)),
        (0.001, QuestionWithdrawn("a"), [FallBack(("a",), FallbackReason.ENDED)]),
        (0.004, BatchDue(), []),
        asked(0.2, "b", StartBatchAt(0.2 + 0.004)),
    )


def test_a_start_without_questions_does_not_delay_the_next_batch() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        perceived(0.005, 1, "a"),
        predicted(0.006, 2, 0.002, "a"),
        asked(0.01, "b", StartBatchAt(0.004 + 0.12)),
        (0.02, QuestionWithdrawn("b"), [FallBack(("b",), FallbackReason.ENDED)]),
        (0.124, BatchDue(), []),
        asked(0.13, "c", StartBatchAt(0.13 + 0.004)),
    )


def test_a_service_that_is_down_is_left_alone_for_a_while() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        (0.01, CognitionFailed(1, FallbackReason.DOWN, "refused"), [
            FallBack(("a",), FallbackReason.DOWN, "refused"),
        ]),
        asked(0.509, "b", FallBack(("b",), FallbackReason.DOWN)),
        asked(0.51, "c", StartBatchAt(0.514)),
    )  # fmt: skip


@pytest.mark.parametrize("reason", [FallbackReason.LATE, FallbackReason.MALFORMED])
def test_one_that_is_late_or_malformed_is_asked_again_at_once(reason: FallbackReason) -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        perceived(0.01, 1, "a"),
        (0.1, CognitionFailed(2, reason, "why"), [FallBack(("a",), reason, "why")]),
        asked(0.2, "b", StartBatchAt(0.2 + 0.004)),
    )


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ((), "cognition sent 0 answers to 1 questions"),
        ((TAGS, TAGS), "cognition sent 2 answers to 1 questions"),
        ((replace(TAGS, output_tokens=nan),), f"{UNSOUND_TAGS}: {replace(TAGS, output_tokens=nan)}"),
        ((replace(TAGS, output_tokens=0.0),), f"{UNSOUND_TAGS}: {replace(TAGS, output_tokens=0.0)}"),
    ],
)
def test_tags_that_do_not_fit(tags: tuple[Tags, ...], error: str) -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        (0.01, PerceptionAnswered(1, tags), [FallBack(("a",), FallbackReason.MALFORMED, error)]),
    )


@pytest.mark.parametrize("costs", [(), (COST, COST), (Cost(-1.0, 0.1),), (Cost(0.1, nan),)])
def test_costs_that_do_not_fit(costs: tuple[Cost, ...]) -> None:
    error = f"cognition sent {len(costs)} answers to 1 questions"
    if len(costs) == 1:
        error = f"prediction sent a cost that is not finite and at least 0: {costs[0]}"
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        perceived(0.01, 1, "a"),
        (0.02, PredictionAnswered(2, costs), [FallBack(("a",), FallbackReason.MALFORMED, error)]),
    )


def test_a_call_of_which_nothing_is_heard_is_given_up_and_its_answer_then_ignored() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        asked(0.005, "b"),
        (1.05, TimerTicked(), []),
        (1.06, TimerTicked(), [FallBack(("a",), FallbackReason.LATE, "the call was given up"), StartBatchAt(1.064)]),
        (1.061, PerceptionAnswered(1, (TAGS,)), []),
        (1.062, CognitionFailed(1, FallbackReason.DOWN, "down"), []),
        started(1.064, 2, "b"),
    )


def test_answers_that_come_twice_or_to_the_wrong_call_change_nothing() -> None:
    play(
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        (0.01, PredictionAnswered(1, (COST,)), []),
        perceived(0.01, 1, "a"),
        (0.01, PerceptionAnswered(1, (TAGS,)), []),
        (0.01, PerceptionAnswered(2, (TAGS,)), []),
        predicted(0.254, 2, 0.25, "a"),
        (0.254, PredictionAnswered(2, (COST,)), []),
        (0.254, CognitionFailed(2, FallbackReason.LATE, "late"), []),
    )


def test_slos_that_are_not_stated_come_from_the_tags_but_for_what_is_judged() -> None:
    unstated = Question(request("a", slo=Slo(6.0, 0.1, None, True), slo_stated=False), "text", "w1")
    tags = replace(TAGS, slo=Slo(4.0, 0.07, None, True))
    queries = (replace(query("a", tags), question=unstated),)
    play(
        (0.0, QuestionAsked(unstated), [StartBatchAt(0.004)]),
        (0.004, BatchDue(), [AskPerception(1, (unstated,))]),
        (0.01, PerceptionAnswered(1, (TAGS,)), [AskPrediction(2, queries)]),
    )


def test_prediction_is_told_a_mean_engines_load_until_its_stream_ends() -> None:
    known = query("a", STATED, kind("A100", "w1", 6, 4))
    play(
        (0.0, HeartbeatReceived(heartbeat("w1", running=6, queued=4)), []),
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        (0.01, PerceptionAnswered(1, (TAGS,)), [AskPrediction(2, (known,))]),
        (0.02, StreamChanged("w1", False), []),
        (0.03, CognitionFailed(2, FallbackReason.LATE, ""), [FallBack(("a",), FallbackReason.LATE)]),
        asked(0.2, "a", StartBatchAt(0.2 + 0.004)),
        started(0.204, 3, "a"),
        perceived(0.21, 3, "a"),
    )


def test_prediction_is_told_the_model_behind_an_alias() -> None:
    def asked_about(beat: WorkerHeartbeat) -> str:
        queue = CognitionQueue(CONFIG)
        aliased = Question(request("a", model="alias"), "text", "w1")
        for now_s, event in (
            (0.0, HeartbeatReceived(beat)), (0.0, QuestionAsked(aliased)), (0.004, BatchDue()),
        ):  # fmt: skip
            queue.step(now_s, event)
        (effect,) = queue.step(0.01, PerceptionAnswered(1, (TAGS,)))
        assert isinstance(effect, AskPrediction)
        (query,) = effect.queries
        (asked,) = query.kinds
        return asked.kind.model or query.pool

    told = heartbeat("w1")
    assert asked_about(told) == "m"  # the pool's name
    engines = tuple(replace(engine, model="Qwen3-8B") for engine in told.engines)
    assert asked_about(replace(told, engines=engines)) == "Qwen3-8B"


def mixed(worker: str, *hardware: str, **changes: Any) -> WorkerHeartbeat:
    """A worker with an engine of each of these cards."""
    (like,) = heartbeat(worker).engines
    engines = tuple(replace(like, engine=f"e{i}", hardware=each) for i, each in enumerate(hardware))
    return heartbeat(worker, engines=engines, **changes)


def test_each_kind_of_engine_of_the_pool_is_asked_about_in_one_call() -> None:
    """Its own worker is asked about the kinds that it has, and of the others the one with the least load."""
    kinds = (kind("H100", "w1", 3, 2), kind("A100", "w1", 3, 2), kind("L40", "w3", 1, 0))
    costs = (Cost(0.2, 0.01), Cost(0.4, 0.02), Cost(0.8, 0.04))
    told = tuple(KindCost(each.kind, cost) for each, cost in zip(kinds, costs, strict=True))
    play(
        (0.0, HeartbeatReceived(mixed("w1", "H100", "A100", "H100", running=9, queued=6)), []),
        (0.0, HeartbeatReceived(mixed("w2", "L40", running=4)), []),
        (0.0, HeartbeatReceived(mixed("w3", "L40", "L40", running=2)), []),
        (0.0, HeartbeatReceived(mixed("w4", "T4", pool="another")), []),
        asked(0.0, "a", StartBatchAt(0.004)),
        asked(0.001, "b"),
        started(0.004, 1, "a", "b"),
        (0.01, PerceptionAnswered(1, (TAGS, TAGS)), [
            AskPrediction(2, (query("a", STATED, *kinds), query("b", STATED, *kinds)))
        ]),
        (0.016, PredictionAnswered(2, (*costs, *costs)), [
            AnnotateBatch(tuple(RequestAnnotated(each, Annotation(STATED, told)) for each in "ab"), 0.012)
        ]),
    )  # fmt: skip


def test_an_engine_that_is_down_has_a_kind_that_counts_only_where_none_is_up() -> None:
    def asked_about(*up: bool) -> list[str]:
        queue, beat = CognitionQueue(CONFIG), mixed("w1", "H100", "A100")
        engines = tuple(replace(engine, up=each) for engine, each in zip(beat.engines, up, strict=True))
        for now_s, event in (
            (0.0, HeartbeatReceived(beat)), (0.0, HeartbeatReceived(replace(beat, engines=engines))),
            (0.0, QuestionAsked(question("a"))), (0.004, BatchDue()),
        ):  # fmt: skip
            queue.step(now_s, event)
        (effect,) = queue.step(0.01, PerceptionAnswered(1, (TAGS,)))
        assert isinstance(effect, AskPrediction)
        return [each.kind.hardware for each in effect.queries[0].kinds]

    assert asked_about(True, False) == ["H100"]
    assert asked_about(False, False) == ["H100", "A100"]


def test_kinds_of_other_workers_are_those_that_they_have_now() -> None:
    fresh, gone = kind("L40", "w2"), kind("T4", "w2")
    play(
        (0.0, HeartbeatReceived(mixed("w1", "H100")), []),
        (0.0, HeartbeatReceived(mixed("w2", "T4")), []),
        asked(0.0, "a", StartBatchAt(0.004)),
        started(0.004, 1, "a"),
        (0.01, PerceptionAnswered(1, (TAGS,)), [AskPrediction(2, (query("a", STATED, kind("H100"), gone),))]),
        (0.02, HeartbeatReceived(mixed("w2", "L40")), []),
        (0.03, CognitionFailed(2, FallbackReason.LATE, ""), [FallBack(("a",), FallbackReason.LATE)]),
        asked(0.2, "a", StartBatchAt(0.2 + 0.004)),
        started(0.204, 3, "a"),
        (0.21, PerceptionAnswered(3, (TAGS,)), [AskPrediction(4, (query("a", STATED, kind("H100"), fresh),))]),
    )


def test_of_very_many_kinds_some_are_asked_about() -> None:
    queue, kinds = CognitionQueue(CONFIG), [f"card {i}" for i in range(3 * MAX_KINDS)]
    for now_s, event in (
        (0.0, HeartbeatReceived(mixed("w1", *kinds))), (0.0, QuestionAsked(question("a"))), (0.004, BatchDue()),
    ):  # fmt: skip
        queue.step(now_s, event)
    (effect,) = queue.step(0.01, PerceptionAnswered(1, (TAGS,)))
    assert isinstance(effect, AskPrediction)
    assert [each.kind.hardware for each in effect.queries[0].kinds] == kinds[:MAX_KINDS]


def test_a_question_about_a_request_at_no_worker_is_asked_all_the_same() -> None:
    held, unplaced = replace(question("a"), worker=""), query("a", STATED, kind("", ""))
    play(
        (0.0, HeartbeatReceived(heartbeat("w1", running=6, queued=4)), []),
        (0.0, QuestionAsked(held), [StartBatchAt(0.004)]),
        (0.004, BatchDue(), [AskPerception(1, (held,))]),
        (0.01, PerceptionAnswered(1, (TAGS,)), [AskPrediction(2, (replace(unplaced, question=held),))]),
    )


def test_off() -> None:
    play(asked(0.0, "a", FallBack(("a",), FallbackReason.OFF)), enabled=False)


def test_a_question_that_waits_is_not_asked_again() -> None:
    queue = CognitionQueue(CONFIG)
    queue.step(0.0, QuestionAsked(question("a")))
    with pytest.raises(ValueError, match="about request a already waits"):
        queue.step(0.0, QuestionAsked(question("a")))
    assert queue.step(0.004, BatchDue()) == [AskPerception(1, (question("a"),))]
