from bisect import bisect_left
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.perception.agent.prior import HistoricalPrior, HistoricalPriorConfig, PriorEstimate
from tests.builders.telemetry import request_settled

QA, ESSAY, UNKNOWN = TaskType.QA, TaskType.ESSAY_GENERATION, TaskType.UNKNOWN
EDGES = [8.0 * 1.3**i for i in range(31)]

SETTLED = request_settled(output_tokens=100)


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


def plain_prior(
    rows: list[tuple[float, str, int, TaskType, int]], now_s: float, tenant: str, prompt: int
) -> PriorEstimate:
    """The estimate of the finest group of settled requests (instant, tenant, prompt, type, output) that weighs ten."""
    edges = (128, 512, 2048, 8192)
    bucket = bisect_left(edges, prompt)
    groups = (
        [r for r in rows if r[1] == tenant and bisect_left(edges, r[2]) == bucket],
        [r for r in rows if bisect_left(edges, r[2]) == bucket],
        rows,
    )
    for group in groups:
        weigh = [(0.5 ** ((now_s - r[0]) / 600.0), r[3], bisect_left(EDGES, r[4])) for r in group]
        if sum(w for w, _, _ in weigh) < 10.0:
            continue
        types = {t for _, t, _ in weigh} - {UNKNOWN} or {UNKNOWN}
        task = min(types, key=lambda t: (-sum(w for w, each, _ in weigh if each is t), t.value))
        own = [(b, w) for w, t, b in weigh if t is task]
        return PriorEstimate(task, plain_quantile(own, 0.5), plain_quantile(own, 0.9))
    return PriorEstimate(UNKNOWN, 200.0, 800.0)


def plain_quantile(own: list[tuple[int, float]], q: float) -> float:
    target, below = q * sum(w for _, w in own), 0.0
    for bucket in sorted({b for b, _ in own}):
        weight = sum(w for b, w in own if b == bucket)
        if below + weight >= target:
            return float(8.0 * 1.3 ** (bucket - 1 + (target - below) / weight))
        below += weight
    raise AssertionError


@pytest.mark.parametrize("seed", range(4))
def test_the_prior_is_of_the_finest_group_that_weighs_enough(seed: int) -> None:
    rng, prior, rows = Random(seed), HistoricalPrior(HistoricalPriorConfig()), []
    for number in range(150):
        row = (
            number * 9.0, rng.choice(("a", "a", "b", "c")), rng.choice((1, 128, 129, 512, 2049, 9000)),
            rng.choice((QA, ESSAY, UNKNOWN)), rng.choice((1, 8, 9, 40, 41, 700, 30_000)),
        )  # fmt: skip
        rows.append(row)
        at_s, tenant, prompt, task, output = row
        prior.settle(at_s, request_settled(tenant=tenant, prompt_tokens=prompt, task=task, output_tokens=output))
        if number % 5 == 0:
            for asked, tokens in (("a", 128), ("a", 129), ("b", 1), ("new", 9000), ("c", 700)):
                found, expected = (
                    prior.estimate(at_s + 50.0, asked, tokens),
                    plain_prior(rows, at_s + 50.0, asked, tokens),
                )
                assert found.task is expected.task
                assert (found.output_tokens, found.output_tokens_p90) == pytest.approx(
                    (expected.output_tokens, expected.output_tokens_p90)
                )


@pytest.mark.parametrize(("count", "known"), [(9, False), (10, True)])
def test_a_group_is_known_from_its_least_weight_on(count: int, known: bool) -> None:
    prior = HistoricalPrior(HistoricalPriorConfig())
    for _ in range(count):
        prior.settle(0.0, request_settled(output_tokens=8))
    assert (prior.estimate(0.0, "a", 100).task is QA) is known
    assert prior.estimate(1.0, "a", 100).task is UNKNOWN  # it has faded a little


@pytest.mark.parametrize(("changes", "counts"), [({"output_tokens": 1}, True), ({"output_tokens": 0}, False),
                                                 ({"outcome": Outcome.CANCELLED}, False)])  # fmt: skip
def test_what_teaches_the_prior(changes: dict[str, Any], counts: bool) -> None:
    prior = HistoricalPrior(HistoricalPriorConfig(min_weight=1.0))
    prior.settle(0.0, request_settled(**changes))
    assert (prior.estimate(0.0, "a", 100).task is QA) is counts


def test_a_type_that_has_faded_to_nothing_stands_for_no_length() -> None:
    """A week after the only tagged request, whose weight has become 0."""
    prior = HistoricalPrior(HistoricalPriorConfig())
    prior.settle(0.0, request_settled(output_tokens=100))
    for _ in range(20):
        prior.settle(700_000.0, request_settled(task=UNKNOWN, output_tokens=8))
    estimate = prior.estimate(700_000.0, "a", 100)
    assert estimate.task is UNKNOWN
    assert estimate.output_tokens < 8.0


def test_ties_of_types_go_by_name() -> None:
    for order in ((QA, ESSAY), (ESSAY, QA)):
        prior = HistoricalPrior(HistoricalPriorConfig())
        for task in order * 10:
            prior.settle(0.0, request_settled(task=task))
        assert prior.estimate(0.0, "a", 100).task is min(QA, ESSAY, key=lambda t: t.value)


def test_the_cell_that_learnt_nothing_for_longest_is_forgotten() -> None:
    prior = HistoricalPrior(HistoricalPriorConfig(max_cells=4, min_weight=1.0))
    for tenant, task in (("a", QA), ("b", ESSAY), ("a", QA), ("c", ESSAY), ("c", ESSAY)):
        prior.settle(0.0, request_settled(tenant=tenant, task=task))
    assert len(prior._cells) == 4
    assert [prior.estimate(0.0, tenant, 100).task for tenant in "abc"] == [QA, ESSAY, ESSAY]
    assert ("b", 0) not in prior._cells
