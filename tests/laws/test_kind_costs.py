"""What a request costs on one engine, and on several of different kinds."""

from statistics import harmonic_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost, KindCost
from hmas.laws.kind_costs import cost_among, cost_on, kinds_of

SLOW, FAST, OTHER = EngineKind("m", "slow"), EngineKind("m", "fast"), EngineKind("m", "other")
COSTS = (KindCost(SLOW, Cost(0.4, 0.06)), KindCost(FAST, Cost(0.1, 0.02)))
TIMES = st.lists(st.tuples(st.floats(1e-3, 10.0), st.floats(1e-4, 1.0)), min_size=1, max_size=8)


def test_an_engine_costs_what_its_kind_does() -> None:
    assert cost_on(COSTS, SLOW) == Cost(0.4, 0.06)
    assert cost_on(COSTS, FAST) == Cost(0.1, 0.02)


def test_of_one_kind_there_is_one_cost_whatever_is_asked() -> None:
    (only,) = alone = (COSTS[0],)
    assert cost_on(alone, FAST) is cost_among(alone, (FAST, FAST)) is cost_among(alone, ()) is only.cost


def test_several_engines_end_as_many_requests_as_if_each_had_the_joint_cost() -> None:
    engines = (SLOW, FAST, FAST)
    joint = cost_among(COSTS, engines)
    assert len(engines) / joint.ttft_s == pytest.approx(sum(1.0 / cost_on(COSTS, each).ttft_s for each in engines))
    assert len(engines) / joint.tpot_s == pytest.approx(sum(1.0 / cost_on(COSTS, each).tpot_s for each in engines))


def test_what_was_not_predicted_is_left_out() -> None:
    assert cost_among(COSTS, (OTHER, FAST)) == cost_on(COSTS, FAST)
    assert cost_on(COSTS, OTHER) == cost_among(COSTS, (OTHER,)) == cost_among(COSTS, (SLOW, FAST))


def test_what_takes_no_time_on_one_kind_takes_none_together() -> None:
    assert cost_among((KindCost(SLOW, Cost(0.0, 0.06)), COSTS[1]), (SLOW, FAST)).ttft_s == 0.0


@given(TIMES)
def test_the_joint_cost_is_the_harmonic_mean(times: list[tuple[float, float]]) -> None:
    kinds = [EngineKind("m", f"{i}") for i in range(len(times))]
    joint = cost_among([KindCost(kind, Cost(*each)) for kind, each in zip(kinds, times, strict=True)], kinds)
    ttfts, tpots = zip(*times, strict=True)
    assert joint.ttft_s == pytest.approx(harmonic_mean(ttfts))
    assert joint.tpot_s == pytest.approx(harmonic_mean(tpots))


def test_engines_of_one_kind_are_one_however_many_they_are() -> None:
    assert kinds_of([FAST, FAST]) == kinds_of([FAST]) == (FAST,)
    assert kinds_of([FAST, SLOW, FAST]) == (FAST, SLOW, FAST)
    assert kinds_of([]) == ()
