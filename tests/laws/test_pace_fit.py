"""The pace law of an engine is what made its steps, and nothing is told before it is known."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hmas.contracts.telemetry import EngineSample
from hmas.laws.pace_fit import PaceFit, PaceFitConfig, slownesses
from tests.builders.telemetry import engine_sample

CONFIG = PaceFitConfig()
LAW = (0.02, 2e-4, 3e-8, 5e-5)  # base, per sequence, per token of context, per prompt token


def sample(rng: Random, slower: float = 1.0, law: tuple[float, ...] = LAW, **changes: float) -> EngineSample:
    """A sample of an engine whose steps follow the law: `step` sequences, context and prompt tokens are drawn."""
    sequences, usage, prompt = rng.uniform(1, 60), rng.uniform(0.01, 0.9), rng.uniform(0, 300)
    busy, capacity = rng.uniform(0.4, 1.0), 200_000
    step_s = slower * (law[0] + law[1] * sequences + law[2] * usage * capacity + law[3] * prompt)
    return engine_sample(
        step_s=step_s, busy=busy, decode_tokens_per_s=sequences * busy / step_s, kv_usage=usage,
        kv_capacity_tokens=capacity, prefill_tokens_per_s=prompt * busy / step_s, **changes,
    )  # fmt: skip


def observed(
    count: int, seed: int = 1, slower: float = 1.0, config: PaceFitConfig = CONFIG, law: tuple[float, ...] = LAW
) -> PaceFit:
    """A fit with `count` observations of one sample each, but the first, which has two."""
    rng, fit = Random(seed), PaceFit(config)
    one = sample(rng, slower, law)
    fit.add(0.0, one)
    fit.add(config.observe_s, one)
    for number in range(2, count + 1):
        one = sample(rng, slower, law)
        fit.add((2 * number - 1) * config.observe_s, one)
    return fit


def terms(fit: PaceFit, alike: tuple[tuple[PaceFit, float], ...] = ()) -> tuple[float, ...]:
    view = fit.view("w", "e", alike)
    return view.base_s, view.sequence_s, view.context_s, view.prompt_s


def test_the_law_that_made_the_steps_is_found() -> None:
    fit = observed(30)
    assert terms(fit) == pytest.approx(LAW, rel=1e-6)
    view = fit.view("w", "e")
    assert (view.worker, view.engine, view.observations) == ("w", "e", 30)


@pytest.mark.parametrize("absent", [1, 2, 3])
def test_a_term_that_costs_nothing_is_found_to_cost_nothing(absent: int) -> None:
    law = tuple(0.0 if i == absent else value for i, value in enumerate(LAW))
    assert terms(observed(30, law=law)) == pytest.approx(law, rel=1e-4, abs=1e-12)


def test_no_term_is_below_zero_whatever_was_measured() -> None:
    rng, fit = Random(3), PaceFit(CONFIG)
    for number in range(40):
        fit.add(number * 10.0, replace(sample(rng), step_s=rng.uniform(0.01, 0.1)))
    assert all(value >= 0.0 for value in terms(fit))
    assert sum(terms(fit)) > 0.0


def test_samples_of_some_seconds_make_one_observation_of_their_means() -> None:
    fit = PaceFit(replace(CONFIG, observe_s=5.0))
    for now_s, tokens in ((0.0, 100.0), (2.0, 200.0), (4.9, 300.0)):
        fit.add(now_s, engine_sample(step_s=0.5, decode_tokens_per_s=tokens, busy=1.0))
    assert fit.observations == 0
    fit.add(5.0, engine_sample(step_s=0.04, decode_tokens_per_s=400.0, busy=1.0))  # the last step's time counts
    assert fit.observations == 1
    assert fit._products[:2] == pytest.approx([0.04, 0.04 * 250.0 * 0.04])
    assert fit._squares[0][1] == pytest.approx(250.0 * 0.04)
    fit.add(9.9, engine_sample(busy=1.0))
    assert fit.observations == 1
    fit.add(10.0, engine_sample(busy=1.0))
    assert fit.observations == 2


def test_older_observations_count_less() -> None:
    fit = PaceFit(replace(CONFIG, keep=0.5))
    idle = engine_sample(busy=1.0, kv_usage=0.0, decode_tokens_per_s=0.0)
    for now_s, step_s in ((0.0, 0.1), (5.0, 0.1), (10.0, 0.2), (15.0, 0.4)):
        fit.add(now_s, replace(idle, step_s=step_s))
    assert terms(fit) == pytest.approx(((0.1 * 0.25 + 0.2 * 0.5 + 0.4) / 1.75, 0.0, 0.0, 0.0))


@pytest.mark.parametrize("changes", [{"step_s": 0.0}, {"busy": 0.29}, {"up": False}])
def test_a_sample_that_tells_nothing_of_steps_is_left_out(changes: dict[str, Any]) -> None:
    fit = PaceFit(CONFIG)
    for number in range(4):
        fit.add(10.0 * number, replace(sample(Random(number)), **changes))
    assert fit.observations == 0
    for now_s in (100.0, 105.0):
        fit.add(now_s, engine_sample(busy=CONFIG.least_busy))
    assert fit.observations == 1


def test_nothing_is_told_before_anything_was_observed() -> None:
    fit = PaceFit(CONFIG)
    assert terms(fit) == (0.0, 0.0, 0.0, 0.0)
    assert fit.view("w", "e").observations == 0
    alike = observed(30)
    assert terms(fit, ((alike, 1.0),)) == pytest.approx(LAW, rel=1e-6)
    assert fit.view("w", "e", ((alike, 1.0),)).observations == 0


def test_terms_that_cannot_be_told_apart_are_not_both_counted() -> None:
    fit, one = PaceFit(CONFIG), sample(Random(1))
    for number in range(30):
        fit.add(10.0 * number, one)
    found = terms(fit)
    assert sum(value > 0.0 for value in found) == 1
    assert fit.view("w", "e").observations in (0, 29)


def test_those_alike_count_less_the_more_the_engine_was_observed_itself() -> None:
    """With as many observations as `alike` says, half."""
    idle = engine_sample(busy=1.0, kv_usage=0.0, decode_tokens_per_s=0.0)

    def steady(step_s: float, observations: int) -> PaceFit:
        fit = PaceFit(replace(CONFIG, keep=1.0))
        for number in range(observations + 1):
            fit.add(5.0 * number, replace(idle, step_s=step_s))
        return fit

    own, other = steady(0.1, 4), steady(0.4, 4)
    assert terms(own)[0] == pytest.approx(0.1)
    assert terms(own, ((other, 1.0),))[0] == pytest.approx((4 * 0.1 + 0.5 * 4 * 0.4) / (4 + 0.5 * 4))
    assert terms(own, ((other, 0.25),))[0] == pytest.approx(0.1)
    often = steady(0.1, 12)
    assert terms(often, ((other, 1.0),))[0] == pytest.approx((12 * 0.1 + 0.25 * 4 * 0.4) / (12 + 0.25 * 4))


def test_how_slow_engines_are_is_told_beside_one_another() -> None:
    fits = [observed(20, seed=1), observed(20, seed=2, slower=2.0)]
    assert slownesses(fits) == pytest.approx([0.5**0.5, 2.0**0.5], rel=1e-3)
    three = [observed(20, seed=n, slower=s) for n, s in enumerate((1.0, 1.0, 1.0))]
    assert slownesses(three) == pytest.approx([1.0, 1.0, 1.0])


def test_slowness_is_one_until_there_are_twice_as_many_observations_as_unknowns() -> None:
    """Two engines have four terms and one factor."""
    few = [observed(5, seed=1), observed(4, seed=2, slower=2.0)]
    assert slownesses(few) == [1.0, 1.0]
    enough = [observed(5, seed=1), observed(5, seed=2, slower=2.0)]
    assert slownesses(enough)[1] > 1.2
    assert slownesses([observed(30)]) == [1.0]
    assert slownesses([]) == []


def test_slowness_is_bounded() -> None:
    found = slownesses([observed(20, seed=1), observed(20, seed=2), observed(20, seed=3, slower=1000.0)])
    assert max(found) / min(found) <= CONFIG.slowest**2 * (1 + 1e-9)
    fit = observed(20)
    law = list(LAW)
    assert fit._slowness(law) == pytest.approx(1.0)
    assert fit._slowness([10 * x for x in law]) == pytest.approx(1.0 / CONFIG.slowest)
    assert fit._slowness([x / 3 for x in law]) == pytest.approx(3.0)
    assert fit._slowness([x / 10 for x in law]) == pytest.approx(CONFIG.slowest)
    assert PaceFit(CONFIG)._slowness(law) == 1.0
