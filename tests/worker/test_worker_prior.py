"""What a worker expects of a request that has no tags yet."""

from math import exp, log1p, sqrt
from random import Random

import pytest

from hmas.worker.agent.config import (
    EngineStateConfig,
    WorkerConfig,
    WorkerPriorConfig,
)
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.assumption import Assumption
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.estimates.prior import Prior
from hmas.worker.agent.state import WorkerState
from tests.worker.builders import annotation, engine, request


def test_prior_narrows_from_default_to_pool_to_tenant() -> None:
    prior = Prior(
        WorkerPriorConfig(output_tokens=200.0, output_tokens_p90=500.0, prefill_tokens_per_s=1000.0, tpot_s=0.05)
    )
    cold = prior.estimate("a", 100)
    assert (cold.output_tokens, cold.output_tokens_p90, cold.ttft_s, cold.tpot_s) == (200.0, 500.0, 0.1, 0.05)
    for _ in range(20):
        prior.learn_length("b", 100, 40)
    assert prior.estimate("a", 100).output_tokens == pytest.approx(40.0)  # of its prompt bucket
    assert prior.estimate("a", 5000).output_tokens == pytest.approx(40.0)  # of all
    for _ in range(20):
        prior.learn_length("a", 100, 900)
    assert prior.estimate("a", 100).output_tokens == pytest.approx(900.0)
    assert prior.estimate("b", 100).output_tokens == pytest.approx(40.0)


def test_prior_quantile_covers_nine_in_ten() -> None:
    rng, prior = Random(4), Prior(WorkerPriorConfig())
    lengths = [int(rng.lognormvariate(5.0, 0.7)) for _ in range(2000)]
    covered = 0
    for length in lengths:
        covered += length <= prior.estimate("a", 100).output_tokens_p90
        prior.learn_length("a", 100, length)
    assert 0.86 <= covered / len(lengths) <= 0.94


def test_prior_is_bounded_and_follows_measured_speed() -> None:
    config = WorkerPriorConfig(prefill_tokens_per_s=1000.0, tpot_s=0.05)
    prior = Prior(config)
    for tenant in range(config.max_cells + 100):
        prior.learn_length(f"t{tenant}", 100, 10)
    assert len(prior._cells) == config.max_cells
    for _ in range(500):
        prior.learn_prefill(1000, 0.2)
        prior.learn_decode(0.01)
    estimate = prior.estimate("x", 1000)
    assert estimate.ttft_s == pytest.approx(0.2, rel=0.01)
    assert estimate.tpot_s == pytest.approx(0.01, rel=0.01)


def test_a_log_normal_is_fitted_to_the_last_lengths() -> None:
    """Mean and variance of all lengths, from `memory` of them on with the newest weighing one part in `memory`."""
    config = WorkerPriorConfig(min_count=3, memory=4, prefill_tokens_per_s=1000.0, tpot_s=0.03)
    prior = Prior(config)
    lengths = (10, 40, 25)
    for at, length in enumerate(lengths):
        assert prior.estimate("a", 100).output_tokens == config.output_tokens, at
        prior.learn_length("a", 100, length)
    logs = [log1p(length) for length in lengths]
    mean = sum(logs) / 3
    variance = sum((log - mean) ** 2 for log in logs) / 3
    made = prior.estimate("a", 100)
    assert made.output_tokens == pytest.approx(exp(mean) - 1.0)
    assert made.output_tokens_p90 == pytest.approx(exp(mean + 1.2816 * sqrt(variance)) - 1.0)
    assert made.ttft_s == pytest.approx(0.1)
    assert made.tpot_s == 0.03
    assert prior.estimate("b", 127).output_tokens == made.output_tokens
    assert prior.estimate("b", 5000).output_tokens == pytest.approx(made.output_tokens)  # of all requests
    for length in (300, 300, 300):
        prior.learn_length("b", 100, length)
    assert prior.estimate("b", 100).output_tokens == pytest.approx(300.0)
    assert prior.estimate("a", 100).output_tokens == pytest.approx(made.output_tokens), "tenants are apart"
    prior.learn_prefill(200, 0.8)
    prior.learn_decode(0.07)
    after = prior.estimate("a", 100)
    assert after.ttft_s == pytest.approx(100 * (0.001 + (0.004 - 0.001) / 4))
    assert after.tpot_s == pytest.approx(0.03 + 0.04 / 4)
    prior.learn_prefill(0, 0.008)
    assert prior.estimate("a", 1).ttft_s == pytest.approx(0.00175 + (0.008 - 0.00175) / 4)


def test_what_every_first_token_waits_for_is_no_work_of_a_prompt_whoever_predicted_it() -> None:
    """The prior learns how long first tokens take, so that its least is more than the cost model's."""
    state = WorkerState(WorkerConfig(worker="w", incarnation="i", address="h:1", pool="m"))
    for model_s, prior_s in ((0.01, 0.05), (0.03, 0.07)):
        state.see_prefill(model_s)
        state.see_prior(prior_s)
    untagged = QueueEntry(
        request(), attempt=1, gateway="g", seq=1, now_s=0.0, estimate=Assumption(50.0, 100.0, 0.07, 0.02)
    )
    own = EngineState(engine(), EngineStateConfig())
    assert state.prefill_s(untagged, own) == pytest.approx(0.02, rel=0.02)
    untagged.annotate(annotation(50.0, ttft_s=0.03))
    assert state.prefill_s(untagged, own) == pytest.approx(0.02, rel=0.02)
