from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.perception.agent.prior import HistoricalPrior, HistoricalPriorConfig, PriorEstimate

SETTLED = RequestSettled(
    request_id="r",
    tenant="a",
    task=TaskType.QA,
    outcome=Outcome.FINISHED,
    slo=Slo(4.0, 0.07),
    prompt_tokens=100,
    output_tokens=100,
    predicted_output_tokens=60.0,
    ttft_s=1.0,
    tpot_s=0.05,
    last_token_s=3.45,
    relegated=False,
    age_s=0.0,
)


def learn(prior: HistoricalPrior, count: int, now_s: float = 0.0, **changes: object) -> None:
    for _ in range(count):
        prior.settle(now_s, replace(SETTLED, **changes))  # type: ignore[arg-type]


def test_before_anything_settled_it_is_a_constant() -> None:
    assert HistoricalPrior(HistoricalPriorConfig()).estimate(0.0, "a", 100) == PriorEstimate(
        TaskType.UNKNOWN, 200.0, 800.0
    )


def test_the_most_frequent_bucket_and_its_profile() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig())
    learn(prior, 20, output_tokens=100)
    learn(prior, 60, task=TaskType.ESSAY_GENERATION, output_tokens=700)
    learn(prior, 20, task=TaskType.ESSAY_GENERATION, output_tokens=1400)
    estimate = prior.estimate(0.0, "a", 100)
    assert estimate.task is TaskType.ESSAY_GENERATION
    assert estimate.output_tokens == pytest.approx(700, rel=0.3)
    assert estimate.output_tokens_p90 == pytest.approx(1400, rel=0.3)


def test_tenants_and_prompt_lengths_are_apart_and_fall_back_to_all() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig())
    learn(prior, 30, tenant="a", prompt_tokens=100, output_tokens=50)
    learn(prior, 30, tenant="b", prompt_tokens=100, output_tokens=2000)
    learn(prior, 30, tenant="b", prompt_tokens=5000, output_tokens=9)
    assert prior.estimate(0.0, "a", 100).output_tokens == pytest.approx(50, rel=0.3)
    assert prior.estimate(0.0, "b", 100).output_tokens == pytest.approx(2000, rel=0.3)
    assert prior.estimate(0.0, "b", 6000).output_tokens == pytest.approx(9, rel=0.3)
    assert prior.estimate(0.0, "new", 5000).output_tokens == pytest.approx(9, rel=0.3)
    assert 9 < prior.estimate(0.0, "new", 100_000).output_tokens < 2000


def test_the_recent_past_outweighs_the_distant_one() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig(half_life_s=60.0))
    learn(prior, 100, now_s=0.0, output_tokens=2000)
    learn(prior, 30, now_s=300.0, output_tokens=50)
    assert prior.estimate(300.0, "a", 100).output_tokens == pytest.approx(50, rel=0.3)
    assert prior.estimate(3000.0, "a", 100).task is TaskType.UNKNOWN  # all of it has faded


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.ENGINE_ERROR, Outcome.POOL_QUEUE_FULL])
def test_a_length_that_is_only_a_lower_bound_teaches_nothing(outcome: Outcome) -> None:
    prior = HistoricalPrior(HistoricalPriorConfig())
    learn(prior, 50, outcome=outcome)
    assert prior.estimate(0.0, "a", 100).output_tokens == 200.0


def test_untagged_history_is_used_only_where_there_is_no_other() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig())
    learn(prior, 50, task=TaskType.UNKNOWN, output_tokens=50)
    assert prior.estimate(0.0, "a", 100).output_tokens == pytest.approx(50, rel=0.3)
    learn(prior, 10, task=TaskType.QA, output_tokens=500)
    assert prior.estimate(0.0, "a", 100).task is TaskType.QA


def test_cells_are_bounded() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig(max_cells=50))
    for i in range(1000):
        learn(prior, 1, tenant=f"t{i}")
    assert len(prior._cells) == 50
    assert prior.estimate(0.0, "t0", 100).output_tokens == pytest.approx(100, rel=0.3)  # the common cell stays
