"""The division of cards over pools, and the search for plans, against enumeration."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, Group, InstanceType, PoolPlan
from hmas.laws.placement.candidates import Cards, KeepConfig, kept, types_of
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.division import PoolWorth, divide
from hmas.laws.placement.plan_search import PlacementFound, SearchConfig, search
from tests.builders.placement import CATALOGUE, demand, kind

ALL = SearchConfig(tolerance=0.0, all_on_time=2.0, keep=KeepConfig(most=99, within=1.0))
worths = st.builds(
    PoolWorth, st.integers(0, 8).map(lambda n: n / 8), st.sampled_from([0.0, 1.0, 2.5]), st.integers(0, 5)
)


@given(st.lists(st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 2)), worths), min_size=1, max_size=3))
def test_the_division_is_the_best_of_all(pools: list[dict[Cards, PoolWorth]]) -> None:
    room = (4, 3)

    def total(chosen: Sequence[Cards]) -> tuple[int, ...]:
        keys = [pool.get(cards, PoolWorth(0.0)).key for pool, cards in zip(pools, chosen, strict=True)]
        return tuple(map(sum, zip(*keys, strict=True)))

    every = [
        chosen
        for chosen in product(*[sorted({(0, 0), *pool}) for pool in pools])
        if all(sum(cards[i] for cards in chosen) <= room[i] for i in (0, 1))
    ]
    found = divide(pools, room)
    assert found in every
    assert total(found) == max(map(total, every))
    assert found == divide(pools, room)


def test_of_equal_shares_the_fewest_dollars_and_then_the_fewest_cards_are_taken() -> None:
    assert divide([{(4,): PoolWorth(0.9, 3.0, 4), (2,): PoolWorth(0.9, 5.0, 2)}], (8,)) == ((4,),)
    assert divide([{(4,): PoolWorth(0.9, 3.0, 4), (2,): PoolWorth(0.9, 3.0, 2)}], (8,)) == ((2,),)
    assert divide([{(4,): PoolWorth(0.9001, 9.0, 4), (2,): PoolWorth(0.9, 3.0, 2)}], (8,)) == ((4,),)
    assert divide([{(9,): PoolWorth(1.0)}], (8,)) == ((0,),)


def drawn(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
    """A value without any pattern."""
    key = f"{demand.pool} {[each.name for each in instances]} {split}".encode()
    return blake2b(key, digest_size=1).digest()[0] / 255


def by_hand(demands: Sequence[PoolDemand], catalogue: Catalogue, budgets: Sequence[Budget], *, single: bool) -> float:
    """The share of the best of all placements, pool by pool and multiset by multiset."""
    rates = [each.rate_rps for each in demands]
    ways: list[list[tuple[Cards, float]]] = []
    for asked in demands:
        found = kept(asked, types_of(asked, catalogue, budgets), budgets, ALL.keep)
        ways.append([((0,) * len(budgets), 0.0)])
        for cards, few in found.items():
            for each in few:
                if each.of_one_type or not single:
                    ways[-1] += [(cards, drawn(asked, each.instances, split)) for split in each.splits]
    return max(
        sum(share * rate for (_, share), rate in zip(chosen, rates, strict=True)) / sum(rates)
        for chosen in product(*ways)
        if all(sum(cards[i] for cards, _ in chosen) <= budget.gpus for i, budget in enumerate(budgets))
    )


@pytest.mark.parametrize("budgets", [(Budget("h100", 8),), (Budget("h100", 3), Budget("a100", 2))], ids=["8", "3+2"])
def test_a_search_in_full_finds_the_best_of_all_placements(budgets: tuple[Budget, ...]) -> None:
    types = [kind(gpus, model, hardware) for gpus in (1, 2, 4) for model in "mn" for hardware in ("h100", "a100")]
    catalogue = Catalogue(tuple(types))
    demands = [demand(8.0, 10.0, pool="m"), demand(3.0, 10.0, seed=2, pool="n")]
    found = search(demands, catalogue, budgets, drawn, ALL)
    assert found.best.share == pytest.approx(by_hand(demands, catalogue, budgets, single=False))
    assert found.one_type.share == pytest.approx(by_hand(demands, catalogue, budgets, single=True))
    assert found == search(demands, catalogue, budgets, drawn, ALL)
    for placement in (found.best, found.one_type):
        for asked, pool in zip(demands, placement.pools, strict=True):
            instances = [catalogue.named(group.type) for group in pool.plan.groups for _ in range(group.count)]
            assert pool.share == pytest.approx(drawn(asked, instances, pool.plan.split))
            assert pool.cards == sum(each.gpus for each in instances)
            assert all(each.model == asked.model for each in instances)
        for budget in budgets:
            own = [catalogue.named(g.type) for p in placement.pools for g in p.plan.groups for _ in range(g.count)]
            assert sum(each.gpus for each in own if each.hardware == budget.hardware) <= budget.gpus
    assert all(len(pool.plan.groups) <= 1 for pool in found.one_type.pools)


def concave(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
    """More cards are worth more, ever less so; several types a little more than one."""
    cards = sum(each.gpus for each in instances)
    need = {"m": 6.0, "n": 3.0}[demand.pool]
    return min(1.0, cards / (cards + need) * 1.6 + 0.03 * (len(set(instances)) - 1))


@pytest.mark.long
def test_with_many_cards_few_are_valued_and_the_best_is_found_all_the_same() -> None:
    catalogue = Catalogue(tuple(kind(gpus, model) for gpus in (1, 2, 4) for model in "mn"))
    demands = [demand(rate, 6.0, pool=pool) for pool, rate in (("m", 20.0), ("n", 10.0))]
    few = search(demands, catalogue, (Budget("h100", 16),), concave, replace(ALL, tolerance=0.0))
    every = search(demands, catalogue, (Budget("h100", 16),), concave, replace(ALL, all_up_to=16))
    assert few.best.share == pytest.approx(every.best.share)
    assert few.one_type.share == pytest.approx(every.one_type.share)
    assert few.evaluations < 0.7 * every.evaluations
    loose = search(demands, catalogue, (Budget("h100", 16),), concave, replace(ALL, tolerance=0.02))
    assert loose.best.share >= every.best.share - 0.02
    assert loose.evaluations <= few.evaluations


def always(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
    return 1.0


def test_what_serves_all_takes_the_cheapest_cards_and_one_type_is_enough() -> None:
    catalogue = Catalogue((kind(1, usd_h=2.0), kind(2, usd_h=1.5), kind(4, usd_h=9.0)))
    found = search([demand(2.0, 10.0)], catalogue, (Budget("h100", 8),), always, SearchConfig())
    assert found.best.pools[0].plan == PoolPlan(pool="m", groups=(Group("m-h100x2", 1),))
    assert (found.best.cards, found.best.usd_h, found.best.share) == (2, 1.5, 1.0)
    assert found.one_type_is_enough
    assert found.bound is None
    assert found.gap is None


def mixed_gains(gain: float) -> PlacementFound:
    def value(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
        return 0.5 + gain * (len(set(instances)) > 1)

    asked = [demand(2.0, 10.0)]
    return search(asked, CATALOGUE, (Budget("h100", 8),), value, ALL, lambda demands, catalogue, budgets: 0.7)


def test_one_type_is_enough_below_a_point() -> None:
    assert mixed_gains(0.009).one_type_is_enough
    assert not mixed_gains(0.011).one_type_is_enough
    found = mixed_gains(0.1)
    assert (found.best.share, found.one_type.share, found.bound) == (0.6, 0.5, 0.7)
    assert found.gap == pytest.approx(0.1)
    names = [(each.name, len(list(same))) for each, same in groupby(CATALOGUE.types)]
    assert {group.type for group in found.best.pools[0].plan.groups} <= {name for name, _ in names}


def test_a_candidate_that_serves_all_ends_the_comparison_at_its_cards() -> None:
    asked: list[tuple[int, ...]] = []

    def value(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
        asked.append(tuple(each.gpus for each in instances))
        return 0.996

    search([demand(2.0, 10.0)], CATALOGUE, (Budget("h100", 4),), value, replace(ALL, all_on_time=0.995))
    assert len({sum(each) for each in asked}) == 4
    assert len(asked) <= 2 * 4  # one of any, one of one type


def fours(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
    """Only instances of four cards are worth something."""
    cards = sum(each.gpus for each in instances if each.gpus == 4)
    return min(1.0, cards / {"m": 12.0, "n": 8.0}[demand.pool])


def test_cards_on_which_nothing_good_fits_do_not_hide_what_fits_on_fewer() -> None:
    catalogue = Catalogue(tuple(kind(gpus, model) for gpus in (1, 4) for model in "mn"))
    demands = [demand(rate, 6.0, pool=pool) for pool, rate in (("m", 40.0), ("n", 20.0))]
    for cards in (16, 18):
        found = search(demands, catalogue, (Budget("h100", cards),), fours, ALL)
        every = search(demands, catalogue, (Budget("h100", cards),), fours, replace(ALL, all_up_to=24))
        assert found.one_type.share == pytest.approx(every.one_type.share)
        assert found.best.share == pytest.approx(every.best.share)
