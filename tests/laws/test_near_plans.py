"""Plans near what runs, weighed by what they gain and by what their steps cost."""

from collections.abc import Sequence

from hmas.contracts.control import Split
from hmas.contracts.pool_plan import Budget, Catalogue, InstanceType, PoolPlan
from hmas.laws.placement.demand import PoolDemand
from hmas.laws.placement.near_plans import NearConfig, Plans, near_plans
from hmas.laws.placement.plan_search import Placement, PlacementFound
from tests.builders.instance_types import instance_type, pool_plan
from tests.builders.placement import demand

CATALOGUE = Catalogue((
    instance_type("tp2", 2), instance_type("tp4", 4), instance_type("n2", 2, model="n"),
))  # fmt: skip
SHORT, LONG = 600.0, 36_000.0


def shares(demand: PoolDemand, instances: Sequence[InstanceType], split: Split) -> float:
    """Twenty cards carry all of m, and five all of n."""
    return min(1.0, sum(each.gpus for each in instances) / (20.0 if demand.pool == "m" else 5.0))


def near(
    standing: Plans,
    gpus: int,
    *searched: tuple[PoolPlan, float],
    horizons_s: tuple[float, ...] = (SHORT,),
    combinations: int = 5000,
) -> list[dict[str, int]]:
    """The engines of each plan."""
    nothing = Placement((), 0.0)
    of_pools = tuple(tuple(each for each in searched if each[0].pool == plan.pool) for plan in standing)
    found = PlacementFound(best=nothing, one_type=nothing, one_type_is_enough=False, evaluations=0, options=of_pools)
    demands = [demand(10.0, 10.0, pool=plan.pool) for plan in standing]
    config = NearConfig(horizons_s=horizons_s, combinations=combinations)
    plans = near_plans(found, standing, demands, CATALOGUE, [Budget("h100", gpus)], shares, config)
    return [{group.type: group.count for plan in each for group in plan.groups} for each in plans]


def test_free_cards_take_one_engine_more_before_engines_are_replaced() -> None:
    """Four more cards of the same kind are as good as the engines that the search prefers, and nothing must leave."""
    assert near((pool_plan(tp4=1),), 8, (pool_plan(tp4=2), 0.4)) == [{"tp4": 2}]
    assert near((pool_plan(tp2=2),), 6, (pool_plan(tp4=1, tp2=1), 0.3)) == [{"tp2": 3}]


def test_what_a_replacement_costs_must_be_gained_while_it_lasts() -> None:
    better = pool_plan(tp4=1), 0.4
    assert near((pool_plan(tp2=2),), 4, better) == []
    assert near((pool_plan(tp2=2),), 4, better, horizons_s=(LONG,)) == [{"tp4": 1}]


def test_each_horizon_has_its_own_plan() -> None:
    """In ten minutes two cards more are worth their start; in ten hours all engines are exchanged."""
    whole = pool_plan(tp4=1, tp2=1), 0.42
    assert near((pool_plan(tp2=2),), 6, whole, horizons_s=(SHORT, LONG)) == [{"tp2": 3}, {"tp4": 1, "tp2": 1}]


def test_cards_move_from_the_pool_that_needs_them_less() -> None:
    """All cards are taken: an engine of m goes where it is worth four times as much, and both pools keep one."""
    assert near((pool_plan(tp2=3), pool_plan("n", n2=1)), 8, horizons_s=(LONG,)) == [{"tp2": 2, "n2": 2}]


def test_nothing_is_returned_that_runs_already_or_does_not_fit() -> None:
    assert near((pool_plan(tp4=2),), 8, (pool_plan(tp4=2), 0.4), (pool_plan(tp4=3), 0.6), horizons_s=(LONG,)) == []


def test_of_many_combinations_those_of_the_best_options_are_weighed() -> None:
    """Of each pool what runs and one other: the engine more where it is worth most, the engine fewer elsewhere."""
    standing = (pool_plan(tp2=3), pool_plan("n", n2=1))
    assert near(standing, 8, horizons_s=(LONG,), combinations=4) == [{"tp2": 2, "n2": 2}]
