"""The fluid bound: above every run, and no higher than it must be where the answer is known."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.placement import fluid_bound as bound
from hmas.laws.placement.demand import PoolDemand, SampledRequest, in_order
from hmas.laws.placement.fluid_bound import fluid_bound, fluid_share
from hmas.sim.quick import QuickSim
from tests.builders.placement import CATALOGUE, demand, kind

ALONE = StepCostModel(0.01, 1e-5, 1e-4, 0.0)


def horizon_s(asked: PoolDemand) -> float:
    """Until the last answer that can be on time has ended."""
    ends = [r.arrival_s + r.ttft_slo_s + r.tpot_slo_s * r.output_tokens for r in asked.requests]
    return max(ends) - asked.requests[0].arrival_s


@given(
    st.integers(1, 10_000), st.floats(1.0, 40.0), st.floats(1.0, 6.0),
    st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3), st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=12)
def test_no_run_keeps_more_on_time(seed: int, rate_rps: float, lax: float, gpus: list[int], split: bool) -> None:
    asked = demand(rate_rps, 5.0, seed, lax=lax)
    instances = in_order([kind(n) for n in gpus])
    division = Split((0.015,), (1, len(gpus) - 1)) if split and len(gpus) > 1 else Split()
    on_time = QuickSim(asked, instances, division, seed=seed).run()
    kept = sum(on_time) / len(on_time)
    seconds = horizon_s(asked)
    of_these = fluid_share(asked, instances, seconds)
    of_any = fluid_bound([asked], CATALOGUE, [Budget("h100", sum(gpus))], [seconds])
    assert kept <= of_these + 1e-6
    assert of_these <= of_any + 1e-6


@pytest.mark.parametrize("changed", ["prompt_tokens", "output_tokens", "tpot_slo_s"])
@pytest.mark.parametrize("first", [0, 1])
def test_classes_of_like_requests_only_raise_it(changed: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every other request is easier, or every other but one."""
    one = replace(kind(1), step=replace(ALONE, c_p_s=1e-4, c_k_s=1e-7))
    asked = alike(120, 100, 0.0215, 0.3)
    asked = replace(asked, requests=tuple(replace(each, prompt_tokens=700) for each in asked.requests))
    harder: Any = {"prompt_tokens": 740, "output_tokens": 110, "tpot_slo_s": 0.0203}[changed]
    requests = tuple(replace(r, **{changed: harder}) if i % 2 == first else r for i, r in enumerate(asked.requests))
    mixed = replace(asked, requests=requests)
    exact, easiest = fluid_share(mixed, [one]), fluid_share(asked, [one])
    monkeypatch.setattr(bound, "SINGLE", 0)
    assert len(bound._alike(mixed)) == 1
    assert exact < 0.9
    assert fluid_share(mixed, [one]) == pytest.approx(easiest, rel=1e-4)
    assert easiest >= exact - 1e-6


def alike(count: int, tokens: int, slo_s: float, seconds: float) -> PoolDemand:
    requests = tuple(SampledRequest(i * seconds / count, 1, tokens, 9.0, slo_s) for i in range(count))
    return PoolDemand(pool="m", model="m", requests=requests, seconds=seconds)


def test_at_one_pace_it_is_the_room_that_a_step_has_within_the_grid() -> None:
    """400 answers of 101 tokens at 20 ms a step, of which 10 ms are the base: an instance decodes 5000 tokens/s."""
    one = replace(kind(1), step=ALONE)
    asked = alike(400, 101, 0.02, 1.0)
    exact = (1.0 - 0.01 / 0.02) / (100 * 1e-4 + 1e-5) / 400
    found = fluid_share(asked, [one])
    assert exact <= found <= exact * bound.GRID**2
    assert fluid_share(asked, [one, one]) == pytest.approx(2 * found, rel=1e-4)
    assert fluid_share(asked, [one], 2.0) == pytest.approx(2 * found, rel=1e-4)


def test_the_number_of_sequences_and_a_base_above_the_slo_limit_it() -> None:
    one = replace(kind(1), step=ALONE, max_num_seqs=10)
    asked = alike(100, 101, 0.02, 1.0)
    assert fluid_share(asked, [one]) <= 10 * 1.0 / 0.01 / 100 / 100 * 1.001
    assert fluid_share(alike(10, 101, 0.0099, 1.0), [one]) <= 1e-6
    assert fluid_share(alike(2, 1, 0.0001, 1.0), [one]) == 1.0  # an answer of one token has no pace


def test_a_budget_is_shared_by_pools_and_counts_cards_of_each_kind() -> None:
    one, dear = replace(kind(1), step=ALONE), replace(kind(2, hardware="a100"), step=ALONE)
    catalogue = Catalogue((one, dear))
    asked = alike(400, 101, 0.02, 1.0)
    alone = fluid_share(asked, [one])
    assert fluid_bound([asked], catalogue, [Budget("h100", 1)]) == pytest.approx(alone, rel=1e-3)
    assert fluid_bound([asked], catalogue, [Budget("h100", 1), Budget("a100", 1)]) == pytest.approx(alone, rel=1e-3)
    both = fluid_bound([asked], catalogue, [Budget("h100", 1), Budget("a100", 3)])
    assert both == pytest.approx(2.5 * alone, rel=1e-3)
    two = [asked, replace(asked, pool="n")]
    assert fluid_bound(two, catalogue, [Budget("h100", 2)]) == pytest.approx(alone, rel=1e-3)
