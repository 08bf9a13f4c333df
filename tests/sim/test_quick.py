"""The quick simulation: the same each time, like the mesh, and good enough to search by."""

from dataclasses import replace
from itertools import product

import pytest

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget
from hmas.laws.layout import pace_class
from hmas.laws.pace import MIXED_SPLIT
from hmas.laws.placement.candidates import KeepConfig, kept, types_of
from hmas.laws.placement.demand import PoolDemand, SampledRequest, in_order
from hmas.laws.placement.plan_search import SearchConfig, search
from hmas.sim.quick import QuickSim, QuickValue
from tests.builders.placement import BASE_S, CATALOGUE, demand, kind


def share(asked: PoolDemand, gpus: tuple[int, ...], split: Split = MIXED_SPLIT, sigma: float = 0.35) -> float:
    on_time = QuickSim(asked, in_order([kind(n) for n in gpus]), split, sigma=sigma).run()
    return sum(on_time) / len(on_time)


def test_the_same_seed_gives_the_same_run_and_another_one_other_lengths() -> None:
    asked, instances = demand(50.0, 20.0), in_order([kind(2), kind(1)])
    runs = [QuickSim(asked, instances, Split(), seed=seed).run() for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_alone_a_request_is_on_time_just_if_its_steps_are() -> None:
    step = kind(1).step
    decode_s = sum(step.step_s(0, 1, 100 + i, 0.0) for i in range(1, 50)) / 49
    first_s = step.step_s(100, 0, 0, 5000.0)
    for tpot_s, ttft_s in product((decode_s * 0.999, decode_s * 1.001), (first_s, first_s + 0.01)):
        asked = PoolDemand(pool="m", model="m", requests=(SampledRequest(1.0, 100, 50, ttft_s, tpot_s),), seconds=2.0)
        assert QuickSim(asked, [kind(1)], Split()).run() == [tpot_s > decode_s and ttft_s > first_s]


def test_a_request_that_never_fits_is_late_and_holds_up_nobody() -> None:
    small = replace(kind(1), kv_tokens=1000)
    long = SampledRequest(0.1, 2000, 10, 5.0, 1.0)
    asked = PoolDemand(pool="m", model="m", requests=(long, SampledRequest(0.2, 100, 10, 5.0, 1.0)), seconds=1.0)
    assert QuickSim(asked, [small], Split()).run() == [False, True]


def test_classes_keep_the_strict_apart_where_steps_would_be_too_slow_for_them() -> None:
    asked = demand(22.0, 40.0)
    cut = Split((1.01 * BASE_S,), (1, 1))
    assert {pace_class(cut.cuts_s, each.tpot_slo_s) for each in asked.requests} == {0, 1}
    assert share(asked, (2, 1), cut) >= share(asked, (2, 1)) + 0.1


def test_more_instances_keep_more_and_an_overload_is_given_up_in_part() -> None:
    asked = demand(36.0, 25.0)
    kept_on = [share(asked, gpus, Split()) for gpus in ((1,), (2, 2), (4, 4, 4))]
    assert kept_on == sorted(kept_on)
    assert 0.1 < kept_on[0] < 0.6


def test_errors_of_the_lengths_cost_something_in_overload() -> None:
    asked = demand(60.0, 25.0, lax=3.0)
    assert share(asked, (2, 2), sigma=0.0) >= share(asked, (2, 2), sigma=1.0)


def test_the_value_leaves_out_what_came_first() -> None:
    asked, instances = demand(40.0, 20.0), [kind(1)]
    on_time = QuickSim(asked, instances, Split()).run()
    for warm_s, from_s in ((5.0, 5.0), (15.0, 10.0)):
        judged = [ok for ok, each in zip(on_time, asked.requests, strict=True) if each.arrival_s >= from_s]
        assert QuickValue(warm_s=warm_s)(asked, instances, Split()) == pytest.approx(sum(judged) / len(judged))


@pytest.mark.long
def test_by_it_the_search_finds_the_best_of_all_multisets_of_a_small_cell() -> None:
    asked, budgets, value = demand(30.0, 15.0), (Budget("h100", 4),), QuickValue(warm_s=3.0)
    found = search([asked], CATALOGUE, budgets, value, SearchConfig(tolerance=0.0))
    every = kept(asked, types_of(asked, CATALOGUE, budgets), budgets, KeepConfig(most=99, within=1.0))
    shares = {
        (each.instances, split): value(asked, each.instances, split)
        for few in every.values()
        for each in few
        for split in each.splits
    }
    assert found.best.share == pytest.approx(max(shares.values()))
    assert found.evaluations < len(shares)
    single = [share for (instances, _), share in shares.items() if len(set(instances)) == 1]
    assert found.one_type.share == pytest.approx(max(single))
