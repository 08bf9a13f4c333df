from math import exp
from random import Random

import pytest

from hmas.contracts.request import Request, Tags, TaskType
from hmas.worker.agent.config import LengthBiasConfig
from hmas.worker.agent.length_bias import LengthBias
from tests.worker.builders import annotation, request

CONFIG = LengthBiasConfig()


def tags(tokens: float, version: str = "v1", task: TaskType = TaskType.QA) -> Tags:
    made = annotation(tokens, p90=2 * tokens, version=version).tags
    return Tags(
        task=task,
        slo=made.slo,
        output_tokens=made.output_tokens,
        output_tokens_p90=made.output_tokens_p90,
        confidence=made.confidence,
        source=made.source,
        version=version,
    )


def learnt(bias: LengthBias, factor: float, count: int, spread: float = 0.0, **fields: object) -> LengthBias:
    rng = Random(1)
    for n in range(count):
        predicted = 50.0 + 10 * (n % 40)
        actual = round(predicted * factor * exp(rng.gauss(0.0, spread)))
        bias.learn(request(**fields), tags(predicted), actual)  # type: ignore[arg-type]
    return bias


def factor(bias: LengthBias, made: Request, said: Tags) -> float:
    corrected = bias.corrected(made, said)
    assert corrected.output_tokens_p90 == pytest.approx(2 * corrected.output_tokens)
    return corrected.output_tokens / said.output_tokens


def test_it_finds_a_factor_in_noise_and_leaves_the_unbiased_alone() -> None:
    for true in (0.1, 1.0, 3.0):
        assert factor(learnt(LengthBias(CONFIG), true, 400, 0.8), request(), tags(500.0)) == pytest.approx(
            true, rel=0.3
        )
    assert factor(LengthBias(CONFIG), request(), tags(500.0)) == 1.0


def test_few_settled_requests_are_half_believed() -> None:
    assert factor(learnt(LengthBias(CONFIG), 0.1, 1), request(), tags(500.0)) > 0.5
    assert factor(learnt(LengthBias(CONFIG), 0.1, 8), request(), tags(500.0)) < 0.4


def test_a_tenant_that_claims_short_answers_is_corrected_and_the_others_stay() -> None:
    bias = LengthBias(CONFIG)
    for _ in range(10):
        learnt(bias, 4.0, 20, tenant="liar")
        learnt(bias, 1.0, 100, tenant="honest")
    assert factor(bias, request(tenant="liar"), tags(100.0)) > 3.0
    assert factor(bias, request(tenant="honest"), tags(100.0)) == pytest.approx(1.0, rel=0.1)
    assert 1.0 < factor(bias, request(tenant="new"), tags(100.0)) < 2.5


def test_predictors_and_task_types_are_kept_apart() -> None:
    bias = learnt(LengthBias(CONFIG), 0.1, 50)
    assert factor(bias, request(), tags(500.0, version="v2")) == 1.0
    assert factor(bias, request(), tags(500.0, task=TaskType.CODE_GENERATION)) == 1.0


def test_a_bound_that_both_reach_teaches_nothing() -> None:
    bias = LengthBias(CONFIG)
    for _ in range(50):
        bias.learn(request(max_tokens=100), tags(900.0), 100)
    assert factor(bias, request(), tags(500.0)) == 1.0
    bias.learn(request(max_tokens=100), tags(900.0), 40)
    bias.learn(request(max_tokens=100), tags(50.0), 100)
    assert factor(bias, request(), tags(500.0)) != 1.0


def test_memory_is_bounded() -> None:
    bias = LengthBias(CONFIG)
    for n in range(2 * CONFIG.max_cells):
        bias.learn(request(tenant=f"t{n}"), tags(10.0), 10)
    assert len(bias._cells) <= CONFIG.max_cells
