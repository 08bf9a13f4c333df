import math
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import GatewayReported, TimerTicked
from hmas.contracts.request import Slo, Tags, TagSource, TaskType
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.laws.slo import default_slo
from hmas.perception.agent.agent import (
    PerceiveItem,
    PerceptionAgent,
    PerceptionConfig,
)
from hmas.perception.agent.backend import Estimate, PromptView
from tests.builders.telemetry import request_settled

QA, ESSAY, UNKNOWN = TaskType.QA, TaskType.ESSAY_GENERATION, TaskType.UNKNOWN

PROMPT = PromptView(text="Who wrote Middlemarch?", prompt_tokens=6, model="m", tenant="a", max_tokens=None)
UNKNOWN_SLO = default_slo(TaskType.UNKNOWN)
ITEM = PerceiveItem(request_id="r", prompt=PROMPT, slo=UNKNOWN_SLO, slo_stated=False, importance=0.75)
ESTIMATE = Estimate(TaskType.QA, 0.9, 50.0, 120.0)


def agent(**changes: Any) -> PerceptionAgent:
    return PerceptionAgent(PerceptionConfig(version="model-3", source=TagSource.MODEL, **changes))


def call(number: int, *items: PerceiveItem, budget_s: float = 0.05) -> CallReceived[PerceiveItem]:
    return CallReceived(number, items or (ITEM,), budget_s)


def tags(effects: list[Any]) -> Tags:
    ((only,),) = [e.answers for e in effects if isinstance(e, AnswerCall)]
    assert isinstance(only, Tags)
    return only


def answered(item: PerceiveItem, estimate: Estimate | None, **changes: Any) -> Tags:
    a = agent(**changes)
    assert a.step(0.0, call(1, item)) == [RunBatch(1, (item.prompt,))]
    return tags(a.step(0.01, BatchReturned(1, (estimate,))))


def test_tags_of_an_estimate() -> None:
    assert answered(ITEM, ESTIMATE) == Tags(
        task=TaskType.QA,
        slo=default_slo(TaskType.QA, 0.75),
        output_tokens=50.0,
        output_tokens_p90=120.0,
        confidence=0.9,
        source=TagSource.MODEL,
        version="model-3",
    )


def test_slo_precedence_is_stated_then_type_by_importance() -> None:
    stated = Slo(0.5, 0.02)
    assert answered(replace(ITEM, slo=stated, slo_stated=True), ESTIMATE).slo is stated
    assert answered(replace(ITEM, importance=1.0), ESTIMATE).slo == Slo(3.2, 0.056)
    assert answered(replace(ITEM, importance=0.5), ESTIMATE).slo == Slo(4.8, 0.084)
    whole = replace(ITEM, slo=replace(UNKNOWN_SLO, whole=True))
    assert answered(whole, ESTIMATE).slo == replace(default_slo(TaskType.QA), whole=True)


def test_what_exceeds_its_share_of_the_cpu_the_prior_answers_and_it_is_counted() -> None:
    a = agent(cpu_share=0.01)
    assert a.step(0.0, call(1, ITEM, ITEM, ITEM)) == [RunBatch(1, (PROMPT, PROMPT))]
    ((first, second, third),) = [e.answers for e in a.step(0.02, BatchReturned(1, (ESTIMATE, ESTIMATE), 0.02))
                                 if isinstance(e, AnswerCall)]  # fmt: skip
    assert [t.source for t in (first, second, third)] == [TagSource.MODEL, TagSource.MODEL, TagSource.PRIOR]
    assert tags(a.step(0.5, call(2))).source is TagSource.PRIOR  # half a second's share does not pay for it
    assert a.fallbacks == {"cpu_share": 2}
    assert a.step(4.0, call(3)) == [RunBatch(2, (PROMPT,))]


def test_max_tokens_caps_and_never_predicts() -> None:
    capped = replace(ITEM, prompt=replace(PROMPT, max_tokens=64))
    assert (answered(capped, ESTIMATE).output_tokens, answered(capped, ESTIMATE).output_tokens_p90) == (50.0, 64.0)
    generous = replace(ITEM, prompt=replace(PROMPT, max_tokens=100_000))
    assert answered(generous, ESTIMATE) == answered(ITEM, ESTIMATE)


def test_a_doubtful_type_is_unknown_but_keeps_its_length() -> None:
    result = answered(ITEM, replace(ESTIMATE, confidence=0.1))
    assert (result.task, result.slo, result.output_tokens) == (TaskType.UNKNOWN, UNKNOWN_SLO, 50.0)
    assert result.source is TagSource.MODEL


@pytest.mark.parametrize(
    ("estimate", "reason"),
    [
        (None, "no_estimate"),
        (replace(ESTIMATE, output_tokens=float("nan")), "invalid"),
        (replace(ESTIMATE, output_tokens=0.0), "invalid"),
        (replace(ESTIMATE, output_tokens_p90=10.0), "invalid"),
        (replace(ESTIMATE, output_tokens_p90=float("inf")), "invalid"),
        (replace(ESTIMATE, confidence=1.5), "invalid"),
    ],
)
def test_what_cannot_be_believed_is_unknown_with_the_prior(estimate: Estimate | None, reason: str) -> None:
    a = agent()
    a.step(0.0, call(1))
    result = tags(a.step(0.01, BatchReturned(1, (estimate,))))
    assert result == Tags(
        task=TaskType.UNKNOWN,
        slo=UNKNOWN_SLO,
        output_tokens=200.0,
        output_tokens_p90=800.0,
        confidence=0.0,
        source=TagSource.PRIOR,
        version="prior-1",
    )
    assert a.fallbacks == {reason: 1}


def test_a_failed_or_miscounted_batch_falls_back_and_the_next_runs() -> None:
    a = agent(max_batch=2)
    a.step(0.0, call(1, ITEM, ITEM))
    a.step(0.0, call(2))
    effects = a.step(0.01, BatchFailed(1, "out of memory"))
    assert [type(e) for e in effects] == [AnswerCall, RunBatch]
    effects = a.step(0.02, BatchReturned(2, (ESTIMATE, ESTIMATE)))
    assert tags(effects).source is TagSource.PRIOR
    assert a.fallbacks == {"failed": 2, "invalid": 1}


def test_while_a_batch_runs_the_next_fills() -> None:
    a = agent(max_batch=3)
    assert a.step(0.0, call(1)) == [RunBatch(1, (PROMPT,))]
    others = [replace(ITEM, prompt=replace(PROMPT, text=f"{i}")) for i in range(4)]
    assert a.step(0.001, call(2, *others[:2])) + a.step(0.002, call(3, *others[2:])) == []
    effects = a.step(0.01, BatchReturned(1, (ESTIMATE,)))
    assert effects[1:] == [RunBatch(2, tuple(o.prompt for o in others[:3]))]
    effects = a.step(0.02, BatchReturned(2, (ESTIMATE, None, ESTIMATE)))
    (answer,) = [e for e in effects if isinstance(e, AnswerCall)]
    assert (answer.call, [t.source for t in answer.answers]) == (2, [TagSource.MODEL, TagSource.PRIOR])
    (answer,) = [e for e in a.step(0.03, BatchReturned(3, (ESTIMATE,))) if isinstance(e, AnswerCall)]
    assert (answer.call, len(answer.answers)) == (3, 2)


def test_a_late_backend_never_delays_the_answer() -> None:
    a = agent()
    a.step(0.0, call(1))
    a.step(0.02, call(2))
    assert a.step(0.049, TimerTicked()) == []
    assert tags(a.step(0.05, TimerTicked())).source is TagSource.PRIOR
    assert a.step(0.06, BatchReturned(1, (ESTIMATE,))) == [RunBatch(2, (PROMPT,))]  # its answer comes too late
    assert tags(a.step(0.069, BatchReturned(2, (ESTIMATE,)))).source is TagSource.MODEL
    assert a.fallbacks == {"late": 1}


def test_a_full_queue_answers_at_once() -> None:
    a = agent(max_batch=1, max_queued=3)
    a.step(0.0, call(1, ITEM, ITEM, ITEM))
    effects = a.step(0.0, call(2, ITEM, ITEM))
    (answer,) = [e for e in effects if isinstance(e, AnswerCall)]
    assert (answer.call, len(answer.answers)) == (2, 2)
    assert a.fallbacks == {"queue_full": 2}


def test_expired_calls_leave_the_queue() -> None:
    a = agent(max_batch=1, max_queued=4)
    for number in range(1, 4):
        a.step(0.0, call(number))
    assert len(a.step(1.0, TimerTicked())) == 3
    assert a.step(1.0, call(9, ITEM, ITEM, ITEM, ITEM)) == []  # there is room again; the backend still hangs
    assert a.fallbacks == {"late": 3}


def test_an_empty_call() -> None:
    assert agent().step(0.0, CallReceived(1, (), 0.05)) == [AnswerCall(1, ())]


def test_settlements_teach_the_prior() -> None:
    a = agent()
    settled = request_settled(slo=UNKNOWN_SLO, prompt_tokens=6, output_tokens=40)
    a.step(0.0, GatewayReported(GatewayTelemetry("g", "m", (), (settled,) * 20)))
    a.step(1.0, call(1))
    result = tags(a.step(1.01, BatchReturned(1, (None,))))
    assert (result.task, result.source) == (TaskType.UNKNOWN, TagSource.PRIOR)
    assert result.output_tokens == pytest.approx(40.0, rel=0.3)


@pytest.mark.parametrize(
    ("changes", "valid"),
    [
        ({"confidence": 0.0}, True), ({"confidence": 1.0}, True), ({"confidence": -1e-9}, False),
        ({"confidence": 1.0 + 1e-9}, False), ({"confidence": math.nan}, False), ({"output_tokens": 1e-9}, True),
        ({"output_tokens": -1.0}, False), ({"output_tokens": 120.0}, True), ({"output_tokens": 120.1}, False),
        ({"output_tokens": math.inf, "output_tokens_p90": math.inf}, False), ({"output_tokens_p90": math.nan}, False),
    ],
)  # fmt: skip
def test_which_estimates_are_believed(changes: dict[str, Any], valid: bool) -> None:
    tags = answered(ITEM, replace(ESTIMATE, **changes))
    assert (tags.version == "model-3") is valid


@pytest.mark.parametrize(("confidence", "task"), [(0.25, QA), (0.2499, UNKNOWN)])
def test_a_type_is_believed_from_the_least_confidence_on(confidence: float, task: TaskType) -> None:
    tags = answered(ITEM, replace(ESTIMATE, confidence=confidence))
    assert (tags.task, tags.confidence) == (task, confidence)


@pytest.mark.parametrize(("max_tokens", "lengths"), [(None, (50.0, 120.0)), (120, (50.0, 120.0)), (1, (1.0, 1.0)),
                                                     (0, (1.0, 1.0)), (50, (50.0, 50.0))])  # fmt: skip
def test_lengths_are_capped_at_the_clients_limit_and_never_below_one(
    max_tokens: int | None, lengths: tuple[float, float]
) -> None:
    capped = replace(ITEM, prompt=replace(PROMPT, max_tokens=max_tokens))
    tags = answered(capped, ESTIMATE)
    assert (tags.output_tokens, tags.output_tokens_p90) == lengths
    prior = answered(capped, None)
    assert (prior.output_tokens, prior.output_tokens_p90) == tuple(
        value if max_tokens is None else min(value, float(max(1, max_tokens))) for value in (200.0, 800.0)
    )


def test_a_stated_time_to_the_last_token_is_kept_beside_the_types_own() -> None:
    alone = replace(ITEM, slo=replace(ITEM.slo, ttlt_s=9.0))
    assert answered(alone, ESTIMATE).slo.ttlt_s == 9.0
    assert answered(alone, ESTIMATE).slo.ttft_s == 4.0
    stated = replace(ITEM, slo_stated=True)
    assert answered(stated, None).slo == ITEM.slo


def test_the_prior_answers_by_what_it_knows_at_the_instant_of_the_call() -> None:
    """Twelve requests tell of a group, and a thousandth of their weight is left after ten half-lives."""
    for asked_s, tokens in ((1.0, None), (6000.0, 200.0)):
        a = agent()
        ends = tuple(request_settled(f"r{i}", tenant="a", prompt_tokens=6, output_tokens=40) for i in range(12))
        a.step(0.0, GatewayReported(GatewayTelemetry("g", "m", (), ends)))
        a.step(asked_s, call(1))
        found = tags(a.step(asked_s, BatchReturned(1, (None,))))
        assert found.source is TagSource.PRIOR
        assert (found.output_tokens == 200.0) is (tokens == 200.0)
