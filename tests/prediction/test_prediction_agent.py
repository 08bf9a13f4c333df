from dataclasses import replace
from math import exp, inf, log, nan
from typing import Any

import pytest

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked, WorkerReported
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, TaskType
from hmas.prediction.agent.agent import (
    PredictionAgent,
    PredictionConfig,
    PredictItem,
)
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel, LinearProfile
from tests.builders.telemetry import request_finished, worker_telemetry

QUERY = CostQuery(
    prompt_tokens=1000,
    output_tokens=100.0,
    model="m",
    hardware="A100",
    running=9,
    waiting=0,
    kv_usage=0.1,
    task=TaskType.QA,
)
LINEAR = LinearCostModel(
    [
        LinearProfile(
            model="", hardware="", prefill_base=0.1, prefill_per_token=0.0, decode_base=0.02, decode_per_running=0.0
        )
    ]
)
MODEL_COST = Cost(0.2, 0.04)


def agent(**config: Any) -> PredictionAgent:
    return PredictionAgent(PredictionConfig(**config), LINEAR)


def call(number: int, count: int = 1, worker: str = "w", budget_s: float = 0.05) -> CallReceived[PredictItem]:
    items = tuple(PredictItem(f"r{number}-{i}", worker, QUERY) for i in range(count))
    return CallReceived(number, items, budget_s)


def finished(name: str, prefill_s: float, tpot_s: float, **changes: Any) -> WorkerReported:
    row = request_finished(name, prefill_s=prefill_s, tpot_s=tpot_s)
    telemetry = worker_telemetry(finished=(replace(row, **changes),))
    return WorkerReported(telemetry)


def test_a_call_is_answered_in_its_order() -> None:
    a = agent()
    assert a.step(0.0, call(1, 2)) == [RunBatch(1, (QUERY, QUERY))]
    costs = (Cost(0.1, 0.01), Cost(0.2, 0.02))
    assert a.step(0.01, BatchReturned(1, costs)) == [AnswerCall(1, costs)]


def test_calls_that_wait_share_the_next_batch_and_are_never_split() -> None:
    a = agent(max_batch=4)
    a.step(0.0, call(1))
    for number, count in ((2, 3), (3, 2), (4, 6)):
        assert a.step(0.001, call(number, count)) == []
    effects = a.step(0.01, BatchReturned(1, (MODEL_COST,)))
    assert effects == [AnswerCall(1, (MODEL_COST,)), RunBatch(2, (QUERY,) * 3)]
    effects = a.step(0.02, BatchReturned(2, (MODEL_COST,) * 3))
    assert effects == [AnswerCall(2, (MODEL_COST,) * 3), RunBatch(3, (QUERY,) * 2)]
    effects = a.step(0.03, BatchReturned(3, (MODEL_COST,) * 2))
    assert effects[1] == RunBatch(4, (QUERY,) * 6)  # larger than a batch, and alone in it


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (BatchFailed(1, "boom"), "failed"),
        (BatchReturned(1, ()), "invalid"),
        (BatchReturned(1, (Cost(float("nan"), 0.1),)), "invalid"),
        (BatchReturned(1, (Cost(-1.0, 0.1),)), "invalid"),
        (BatchReturned(1, (MODEL_COST, MODEL_COST)), "invalid"),
    ],
)
def test_a_model_that_fails_costs_only_accuracy(event: Any, reason: str) -> None:
    a = agent()
    a.step(0.0, call(1))
    assert a.step(0.01, event) == [AnswerCall(1, (Cost(0.1, 0.02),))]
    assert a.fallbacks == {reason: 1}
    assert a.step(0.02, call(2)) == [RunBatch(2, (QUERY,))]


def test_a_late_model_never_delays_the_answer() -> None:
    a = agent()
    a.step(0.0, call(1))
    a.step(0.01, call(2))
    a.step(0.02, call(3))
    assert a.step(0.049, TimerTicked()) == []
    assert a.step(0.0605, TimerTicked()) == [AnswerCall(n, (Cost(0.1, 0.02),)) for n in (1, 2)]
    assert a.step(0.061, TimerTicked()) == []
    assert a.step(0.065, BatchReturned(1, (MODEL_COST,))) == [RunBatch(2, (QUERY,))]
    assert a.step(0.069, BatchReturned(2, (MODEL_COST,))) == [AnswerCall(3, (MODEL_COST,))]
    assert a.fallbacks == {"late": 2}


def test_a_full_queue_answers_at_once() -> None:
    a = agent(max_queued=2)
    a.step(0.0, call(1))
    a.step(0.0, call(2, 2))
    assert a.step(0.0, call(3)) == [AnswerCall(3, (Cost(0.1, 0.02),))]
    assert a.fallbacks == {"queue_full": 1}


def test_measurements_correct_the_worker_they_come_from() -> None:
    a = agent()
    for n in range(1, 201):
        a.step(n * 0.1, call(n))
        a.step(n * 0.1, BatchReturned(n, (MODEL_COST,)))
        a.step(n * 0.1 + 0.05, finished(f"r{n}-0", prefill_s=0.6, tpot_s=0.02))
    assert list(a.factors("w")[QUERY.kind]) == pytest.approx([3.0, 0.5], rel=0.05)
    a.step(30.0, call(500))
    (answer,) = a.step(30.0, BatchReturned(201, (MODEL_COST,)))
    assert isinstance(answer, AnswerCall)
    assert answer.answers[0].ttft_s == pytest.approx(0.6, rel=0.05)
    a.step(30.0, call(501, worker="another"))
    assert a.step(30.0, BatchReturned(202, (MODEL_COST,))) == [AnswerCall(501, (MODEL_COST,))]


def test_each_kind_of_engine_of_a_worker_is_corrected_by_what_was_measured_on_it() -> None:
    """One worker has two kinds; the model says the same of both, and requests run on either in turn."""
    a, slow = agent(), replace(QUERY, model="m", hardware="L40")
    times = {QUERY.kind: (0.3, 0.02), slow.kind: (0.9, 0.06)}

    def asked(number: int, name: str) -> tuple[Cost, ...]:
        items = tuple(PredictItem(name, "w", query) for query in (QUERY, slow))
        a.step(number * 0.1, CallReceived(number, items, 0.05))
        (answer,) = a.step(number * 0.1, BatchReturned(number, (MODEL_COST, MODEL_COST)))
        assert isinstance(answer, AnswerCall)
        return answer.answers

    for n in range(1, 201):
        asked(n, f"r{n}")
        kind = (QUERY, slow)[n % 2].kind
        told = replace(kind, model="")  # the engine names no model, so that it has the pool's name
        a.step(n * 0.1 + 0.05, finished(f"r{n}", *times[kind], kind=told))
    first, second = asked(201, "next")
    assert (first.ttft_s, first.tpot_s) == pytest.approx(times[QUERY.kind], rel=0.05)
    assert (second.ttft_s, second.tpot_s) == pytest.approx(times[slow.kind], rel=0.05)
    assert {kind: factors[0] for kind, factors in a.factors("w").items()} == {
        QUERY.kind: pytest.approx(1.5, rel=0.05), slow.kind: pytest.approx(4.5, rel=0.05)
    }  # fmt: skip


def test_a_kind_that_was_not_asked_about_teaches_nothing_where_several_were() -> None:
    a = agent()
    items = tuple(PredictItem("r", "w", replace(QUERY, hardware=each)) for each in ("H100", "A100"))
    a.step(0.0, CallReceived(1, items, 0.05))
    a.step(0.0, BatchReturned(1, (MODEL_COST, MODEL_COST)))
    a.step(0.1, finished("r", 5.0, 5.0, kind=EngineKind("m", "T4")))
    assert a.factors("w") == {}


def test_a_model_that_does_not_know_the_engine_is_overruled_by_what_the_engine_shows() -> None:
    """The model takes every request for the same; the worker's times grow with prompt and batch."""
    a = agent()
    for n in range(1, 101):
        tokens, running = 50 + 37 * n % 3000, n % 20
        item = PredictItem(f"r{n}", "w", replace(QUERY, prompt_tokens=tokens, running=running))
        a.step(n * 0.1, CallReceived(n, (item,), 0.05))
        a.step(n * 0.1, BatchReturned(n, (MODEL_COST,)))
        a.step(n * 0.1 + 0.05, finished(f"r{n}", prefill_s=0.01 + 1e-4 * tokens, tpot_s=0.02 + 1e-3 * (running + 1)))
    items = tuple(PredictItem(f"x{t}", "w", replace(QUERY, prompt_tokens=t, running=t // 100)) for t in (100, 2000))
    a.step(20.0, CallReceived(500, items, 0.05))
    (answer,) = a.step(20.0, BatchReturned(101, (MODEL_COST, MODEL_COST)))
    assert isinstance(answer, AnswerCall)
    assert [cost.ttft_s for cost in answer.answers] == pytest.approx([0.02, 0.21], rel=0.1)
    assert [cost.tpot_s for cost in answer.answers] == pytest.approx([0.022, 0.041], rel=0.05)


def test_a_long_delay_between_prediction_and_measurement_does_not_make_it_swing() -> None:
    """Four hundred requests are under way at any time; each was corrected by what was known when it came."""
    a = agent()
    factors = []
    for n in range(1, 3001):
        a.step(n * 0.01, call(n))
        a.step(n * 0.01, BatchReturned(n, (MODEL_COST,)))
        if n > 400:
            a.step(n * 0.01, finished(f"r{n - 400}-0", prefill_s=0.6, tpot_s=0.04))
            factors.append(a.factors("w")[QUERY.kind][0])
    assert max(factors) <= 3.2
    assert min(factors[50:]) >= 2.8


@pytest.mark.parametrize("changes", [{"outcome": Outcome.CANCELLED}, {"request_id": "nobody"}])
def test_what_did_not_finish_or_is_unknown_teaches_nothing(changes: dict[str, Any]) -> None:
    a = agent()
    a.step(0.0, call(1))
    a.step(0.0, BatchReturned(1, (MODEL_COST,)))
    a.step(0.1, finished("r1-0", 5.0, 5.0, **changes))
    assert a.factors("w") == {}


def test_memory_is_bounded() -> None:
    a = agent(max_followed=10, max_measured=3)
    for n in range(1, 101):
        a.step(n * 1.0, call(n, worker=f"w{n}"))
        a.step(n * 1.0, BatchReturned(n, (MODEL_COST,)))
        if n % 2:
            a.step(n * 1.0, finished(f"r{n}-0", 0.6, 0.02))
    assert (len(a._followed), len(a._measured)) == (10, 3)


def scale(a: PredictionAgent, worker: str) -> tuple[float, float]:
    """The factors on the model's times for the kind of engine that is asked about; 1 where nothing was measured."""
    return a.factors(worker).get(QUERY.kind, (1.0, 1.0))


@pytest.mark.parametrize(
    "cost", [Cost(nan, 0.1), Cost(0.1, nan), Cost(inf, 0.1), Cost(0.1, inf), Cost(-1e-9, 0.1), Cost(0.1, -1e-9)]
)
def test_a_cost_that_cannot_be_discredits_its_batch(cost: Cost) -> None:
    a = agent()
    a.step(0.0, call(1, 2))
    assert a.step(0.01, BatchReturned(1, (MODEL_COST, cost))) == [AnswerCall(1, (Cost(0.1, 0.02),) * 2)]
    assert a.fallbacks == {"invalid": 2}


def test_a_cost_of_nothing_is_valid() -> None:
    a = agent()
    a.step(0.0, call(1))
    assert a.step(0.01, BatchReturned(1, (Cost(0.0, 0.0),))) == [AnswerCall(1, (Cost(0.0, 0.0),))]


def learnt(**changes: object) -> tuple[float, float]:
    a = agent()
    for n in range(1, 40):
        a.step(n * 0.1, call(n))
        a.step(n * 0.1, BatchReturned(n, (MODEL_COST,)))
        a.step(n * 0.1, finished(f"r{n}-0", prefill_s=0.6, tpot_s=0.12, **changes))
    return scale(a, "w")


def test_the_time_per_token_is_learnt_from_two_tokens_on() -> None:
    assert learnt(output_tokens=2) == pytest.approx((3.0, 3.0), rel=1e-3)
    assert learnt(output_tokens=1) == pytest.approx((3.0, 1.0), rel=1e-3)
    assert learnt(outcome=Outcome.CANCELLED) == (1.0, 1.0)


def test_an_end_is_learnt_from_once() -> None:
    a = agent()
    a.step(0.0, call(1))
    a.step(0.0, BatchReturned(1, (MODEL_COST,)))
    for prefill_s in (0.6, 0.2, 0.2, 0.2):
        a.step(0.1, finished("r1-0", prefill_s, 0.04))
    assert scale(a, "w")[0] == pytest.approx(exp(min(log(3.0), 2.5 * 0.7)))


def test_requests_and_workers_are_followed_up_to_their_bounds_the_newest_ones() -> None:
    a = agent(max_followed=2, max_measured=2)
    for n, worker in enumerate("abab", 1):
        a.step(n * 1.0, call(n, worker=worker))
        a.step(n * 1.0, BatchReturned(n, (MODEL_COST,)))
        a.step(n * 1.0, finished(f"r{n}-0", 0.4, 0.04))
    for n, worker in ((5, "a"), (6, "c")):
        a.step(n * 1.0, call(n, worker=worker))
        a.step(n * 1.0, BatchReturned(n, (MODEL_COST,)))
        a.step(n * 1.0, finished(f"r{n}-0", 0.4, 0.04))
    assert [scale(a, worker)[0] == 1.0 for worker in "abc"] == [False, True, False]
    b = agent(max_followed=2)
    b.step(0.0, call(1, 3))
    b.step(0.0, BatchReturned(1, (MODEL_COST,) * 3))
    b.step(0.1, finished("r1-0", 0.4, 0.04))
    assert scale(b, "w") == (1.0, 1.0)
    b.step(0.1, finished("r1-1", 0.4, 0.04))
    assert scale(b, "w")[0] > 1.0


def test_a_request_that_is_asked_for_again_is_the_newest() -> None:
    a = agent(max_followed=2)
    for number, names in enumerate((1, 2, 1, 3), 1):
        item = call(names).items
        a.step(number * 1.0, type(call(1))(number, item, 0.05))
        a.step(number * 1.0, BatchReturned(number, (MODEL_COST,)))
    a.step(9.0, finished("r2-0", 0.4, 0.04))
    assert scale(a, "w") == (1.0, 1.0)
    a.step(9.0, finished("r1-0", 0.4, 0.04))
    assert scale(a, "w")[0] > 1.0


def test_a_call_is_never_split() -> None:
    a = agent(max_batch=2)
    (batch,) = a.step(0.0, call(1, 5))
    assert isinstance(batch, RunBatch)
    assert len(batch.rows) == 5
