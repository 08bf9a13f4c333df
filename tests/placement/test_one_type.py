"""Plans with one type for each pool: as good as any that brute force finds, on no more cards."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.pool_plan import Group, InstanceType, PoolPlan
from hmas.contracts.step_cost import StepCostModel
from hmas_lab.placement.one_type import PoolKinds, one_size_for_all, one_type_each, replicated


def kind(pool: str, gpus: int, limit: int = 256) -> InstanceType:
    step = StepCostModel(0.01, 0.0, 0.0, 0.0)
    name = f"{pool}-{gpus}-{limit}"
    return InstanceType(name=name, model=pool, hardware="h", gpus=gpus, step=step, kv_tokens=10_000, max_num_seqs=limit)


KINDS: PoolKinds = {"a": [kind("a", 1), kind("a", 2)], "b": [kind("b", 2), kind("b", 3)]}
NAMED = {each.name: each for own in KINDS.values() for each in own}


def cards(plans: tuple[PoolPlan, ...]) -> int:
    return sum(NAMED[group.type].gpus * group.count for plan in plans for group in plan.groups)


@given(st.integers(0, 7), st.data())
@settings(max_examples=80, deadline=None)
def test_no_division_keeps_more_or_as_much_on_fewer_cards(gpus: int, data: st.DataObject) -> None:
    table: dict[tuple[str, str, int], float] = {}

    def judge(pool: str, own: InstanceType, count: int) -> float:
        key = pool, own.name, count
        return table.setdefault(key, data.draw(st.integers(0, 3)) / 10) if key not in table else table[key]

    def kept(plans: tuple[PoolPlan, ...]) -> float:
        return sum(judge(plan.pool, NAMED[g.type], g.count) for plan in plans for g in plan.groups)

    found = one_type_each(KINDS, gpus, judge)
    assert [plan.pool for plan in found] == ["a", "b"]
    assert cards(found) <= gpus
    options = {
        pool: [(), *((Group(k.name, n),) for k in own for n in range(1, gpus // k.gpus + 1))]
        for pool, own in KINDS.items()
    }
    for groups in product(options["a"], options["b"]):
        other = tuple(PoolPlan(pool=pool, groups=own) for pool, own in zip("ab", groups, strict=True))
        if cards(other) <= gpus:
            assert (round(kept(other), 6), -cards(other)) <= (round(kept(found), 6), -cards(found))


def test_one_size_for_all_takes_the_size_that_is_best_together() -> None:
    values = {("a", 1): 3.0, ("a", 2): 2.0, ("b", 2): 3.0, ("b", 3): 9.0}
    plans = one_size_for_all(KINDS, 6, lambda pool, own, count: values[pool, own.gpus] * min(count, 2))
    assert plans == (
        PoolPlan(pool="a", groups=(Group("a-2-256", 1),)),
        PoolPlan(pool="b", groups=(Group("b-2-256", 2),)),
    )


def test_one_size_for_all_needs_a_size_that_all_have() -> None:
    with pytest.raises(ValueError, match="no number of cards suits all pools"):
        one_size_for_all({"a": [kind("a", 1)], "b": [kind("b", 2)]}, 4, lambda *_: 1.0)


def test_replication_has_the_smallest_instances_alone_and_searches_their_limit() -> None:
    own = {"a": [kind("a", 1, 8), kind("a", 1, 16), kind("a", 2, 16)]}
    plans = replicated(own, 4, lambda _, k, n: float(k.gpus * 10 + n) if k.max_num_seqs == 16 else float(n))
    assert plans == (PoolPlan(pool="a", groups=(Group("a-1-16", 4),)),)
