"""The steps from the engines that run to those of a plan: by hand, and for whatever runs and is wanted."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import Budget, Catalogue, Group, PlannedType, PlanStep, PoolPlan, StepKind
from hmas.laws.plan_steps import (
    InstanceCounts,
    alike_plans,
    alike_types,
    counted,
    plan_fault,
    steps_towards,
    told_type,
    type_named_by,
)
from tests.builders.instance_types import CATALOGUE, instance_type, pool_plan

BUDGET = (Budget("h100", 8), Budget("l40s", 2))
GPUS = {each.name: each.gpus for each in CATALOGUE.types}
HOMES = {"tp1": "m", "tp2": "m", "tp4": "m", "other2": "n"}


def running(**counts: int) -> dict[str, InstanceCounts]:
    return {name: InstanceCounts(HOMES.get(name, "m"), up) for name, up in counts.items()}


def steps(
    *plans: PoolPlan, now: Mapping[str, InstanceCounts], splits: Mapping[str, Split] | None = None
) -> tuple[PlanStep, ...]:
    return steps_towards(plans, CATALOGUE, BUDGET, now, splits or {}, 60.0)


def told(found: tuple[PlanStep, ...]) -> list[tuple[Any, ...]]:
    return [(e.kind.value, e.type, e.count_from, e.count_to, *((g.type, g.count) for g in e.leaving)) for e in found]


def test_nothing_is_left_where_all_is_as_planned() -> None:
    assert steps(pool_plan(tp4=1, tp2=2), now=running(tp2=2, tp4=1)) == ()


def test_engines_that_are_ordered_count_as_there() -> None:
    assert steps(pool_plan(tp4=2), now={"tp4": InstanceCounts("m", 1, 1, 0)}) == ()
    assert told(steps(pool_plan(tp4=1), now={"tp4": InstanceCounts("m", 1, 1, 0)})) == [("scale", "tp4", 2, 1)]


def test_more_engines_start_on_free_cards_and_fewer_drain() -> None:
    (up,) = steps(pool_plan(tp2=3), now=running(tp2=1))
    assert up == PlanStep(
        kind=StepKind.SCALE, pool="m", type="tp2", count_from=1, count_to=3, acts_after_s=100.0,
        lost_gpu_s=2 * 2 * 100.0,
    )  # fmt: skip
    (down,) = steps(pool_plan(tp2=1), now=running(tp2=4))
    assert down == PlanStep(
        kind=StepKind.SCALE, pool="m", type="tp2", count_from=4, count_to=1, acts_after_s=60.0,
        lost_gpu_s=3 * 2 * 60.0,
    )  # fmt: skip


def test_a_replacement_is_down_first_unless_cards_are_free() -> None:
    (step,) = steps(pool_plan(tp4=1, tp2=2), now=running(tp4=2))
    assert step == PlanStep(
        kind=StepKind.REPLACE, pool="m", type="tp2", count_from=0, count_to=2, leaving=(Group("tp4", 1),),
        acts_after_s=160.0, lost_gpu_s=4 * 60.0 + 4 * 100.0,
    )  # fmt: skip
    assert told(steps(pool_plan(tp2=2), now=running(tp4=1))) == [("scale", "tp2", 0, 2), ("scale", "tp4", 1, 0)]


def test_cards_that_draining_engines_hold_are_not_free() -> None:
    now = {"tp4": InstanceCounts("m", 1, 0, 1)}
    assert told(steps(pool_plan(tp4=1, tp2=2), now=now)) == []
    assert told(steps(pool_plan(tp4=1, tp2=2), now=running(tp4=1))) == [("scale", "tp2", 0, 2)]


def test_as_few_engines_as_possible_make_room_for_one() -> None:
    assert told(steps(pool_plan(tp4=2), now=running(tp2=4))) == [
        ("replace", "tp4", 0, 1, ("tp2", 2)), ("replace", "tp4", 1, 2, ("tp2", 2)),
    ]  # fmt: skip
    assert told(steps(pool_plan(tp2=1, tp4=1), now=running(tp4=1, tp1=4))) == [
        ("scale", "tp1", 4, 2), ("replace", "tp2", 0, 1, ("tp1", 2)),
    ]  # fmt: skip
    now = running(tp4=1, other2=2)
    assert told(steps(pool_plan(tp2=1), pool_plan("n", other2=1), now=now))[-1][4:] == (("other2", 1),)
    big = Catalogue((*CATALOGUE.types, instance_type("tp8", 8)))
    found = steps_towards([pool_plan(tp4=1, tp2=2)], big, BUDGET, running(tp8=1), {}, 60.0)
    assert told(found) == [("replace", "tp4", 0, 1, ("tp8", 1)), ("scale", "tp2", 0, 2)]
    assert found[0].lost_gpu_s == 8 * 60.0 + 8 * 100.0


def test_cards_move_from_one_pool_to_another() -> None:
    now = running(tp4=1, other2=2)
    assert told(steps(pool_plan(tp4=1, tp2=1), pool_plan("n", other2=1), now=now)) == [
        ("replace", "tp2", 0, 1, ("other2", 1))
    ]


def test_pools_without_a_plan_keep_their_engines_and_others_lose_what_is_not_named() -> None:
    assert told(steps(pool_plan(tp2=1), now=running(tp2=1, tp1=1, other2=1))) == [("scale", "tp1", 1, 0)]


def test_cards_of_another_kind_make_no_room() -> None:
    now = running(tp4=2) | {"slow1": InstanceCounts("m", 1)}
    assert told(steps(pool_plan(tp4=1, tp1=1), now=now)) == [
        ("scale", "slow1", 1, 0), ("replace", "tp1", 0, 1, ("tp4", 1)),
    ]  # fmt: skip


def test_classes_change_first_and_only_once_their_engines_are_there() -> None:
    split = Split((0.02,), (1, 2))
    plan = pool_plan("m", split, tp4=1, tp2=2)
    (step,) = steps(plan, now=running(tp4=1, tp2=2), splits={"m": Split()})
    assert (step.kind, step.pool, step.type, step.acts_after_s, step.lost_gpu_s) == ("reclass", "m", "", 1.0, 0.0)
    assert step.reversible
    assert told(steps(plan, now=running(tp4=1, tp2=1), splits={"m": Split()})) == [("scale", "tp2", 1, 2)]
    assert steps(plan, now=running(tp4=1, tp2=2), splits={"m": split}) == ()
    assert steps(plan, now=running(tp4=1, tp2=2)) == ()
    assert told(steps(pool_plan(tp4=1, tp2=1), now=running(tp4=1), splits={"m": split})) == [
        ("reclass", "", 0, 0), ("scale", "tp2", 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ordered", "up", "away", "counts"),
    [
        (3, 3, 0, (3, 0, 0)),  # as ordered
        (3, 2, 1, (2, 1, 0)),  # one is down
        (4, 3, 0, (3, 1, 0)),  # one starts
        (2, 3, 0, (2, 0, 1)),  # one is to leave
        (2, 2, 1, (2, 0, 1)),  # it drains
        (3, 2, 2, (2, 1, 1)),  # one is down while another drains
    ],
)
def test_what_heartbeats_say_is_counted(ordered: int, up: int, away: int, counts: tuple[int, int, int]) -> None:
    found = counted("m", ordered, up, away)
    assert (found.up, found.starting, found.leaving) == counts
    assert (found.ordered, found.held) == (ordered, max(ordered, up + away))
    assert found.settled is (not counts[1] and not counts[2])


def test_the_type_of_an_engine_is_told_by_its_model_and_hardware() -> None:
    found = {
        (model, hardware): each and each.name
        for model, hardware in (("m", "H100x4"), ("", "h100x2"), ("m", "h100"), ("m", "h100x1"), ("n", "h100x2"),
                                ("m", "h100x8"), ("x", "h100x2"), ("m", "h100x"), ("m", "a100x2"))
        for each in [type_named_by(CATALOGUE, EngineKind(model, hardware), "m")]
    }  # fmt: skip
    assert list(found.values()) == ["tp4", "tp2", "tp1", "tp1", "other2", None, None, None, None]
    told = [
        PlannedType(name=each.name, model=each.model, hardware=each.hardware, gpus=each.gpus)
        for each in CATALOGUE.types
    ]
    assert {kind: told_type(told, EngineKind(*kind), "m") or None for kind in found} == found


def test_plans_are_alike_whatever_the_order_of_their_types_or_pools() -> None:
    split = Split((0.02,), (1, 2))
    one, other = pool_plan("m", split, tp4=1, tp2=2), pool_plan("n", other2=1)
    assert alike_plans((one, other), (other, pool_plan("m", split, tp2=2, tp4=1, tp1=0)))
    for changed in (pool_plan("m", tp4=1, tp2=2), pool_plan("m", split, tp4=1, tp2=1), pool_plan("x", split, tp4=1)):
        assert not alike_plans((one, other), (changed, other))
    assert not alike_plans((one, other), (one,))


def test_types_of_one_kind_are_found() -> None:
    assert alike_types(CATALOGUE) is None
    assert alike_types(Catalogue((*CATALOGUE.types, instance_type("b", 2, hardware="H100")))) == ("tp2", "b")


@pytest.mark.parametrize(
    ("plans", "fault"),
    [
        ([pool_plan(tp4=2)], ""),
        ([pool_plan(tp4=2, tp1=1)], "it takes 9 h100, and the budget has 8"),
        ([pool_plan(slow1=3)], "it takes 3 l40s, and the budget has 2"),
        ([pool_plan(tp8=1)], "the catalogue has no instance type tp8"),
        ([pool_plan(tp4=0)], "the pool m has no engines"),
        ([pool_plan(tp4=1, tp2=-1)], "the type tp2 is counted below 0 or named twice"),
        ([pool_plan(tp4=1), pool_plan("n", tp4=1)], "the type tp4 is counted below 0 or named twice"),
        ([pool_plan(tp4=1), pool_plan(tp2=1)], "the pool m is planned twice"),
        ([pool_plan("m", Split((0.1,), (1, 1)), tp2=3)], "the split of the pool m is one of 2 engines"),
        ([pool_plan("m", Split((0.1,), (1, 1)), tp2=1, tp4=1)], ""),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_carried_out_is_refused(plans: list[PoolPlan], fault: str) -> None:
    assert plan_fault(plans, CATALOGUE, BUDGET) == fault


# --- for whatever runs and whatever is wanted


def within_budget(counts: Mapping[str, int]) -> bool:
    return sum(GPUS[name] * number for name, number in counts.items()) <= 8


def packed(names: list[str]) -> dict[str, int]:
    """Takes engines of these types while there are cards."""
    counts = dict.fromkeys(HOMES, 0)
    for name in names:
        more = counts | {name: counts[name] + 1}
        counts = more if within_budget(more) else counts
    return counts


COUNTS = st.lists(st.sampled_from(sorted(HOMES)), max_size=12).map(packed)


def planned(counts: Mapping[str, int]) -> list[PoolPlan]:
    return [
        PoolPlan(pool=pool, groups=tuple(Group(n, k) for n, k in counts.items() if HOMES[n] == pool))
        for pool in ("m", "n")
    ]


@given(COUNTS, COUNTS)
def test_the_steps_one_by_one_lead_to_the_plan_within_the_budget(now: dict[str, int], then: dict[str, int]) -> None:
    left = Counter(now)
    for step in steps(*planned(then), now=running(**now)):
        for group in step.leaving:
            assert left[group.type] - group.count >= then[group.type]  # none that is wanted leaves
            left[group.type] -= group.count
        assert left[step.type] == step.count_from
        left[step.type] = step.count_to
        assert within_budget(left)
        assert step.lost_gpu_s > 0.0
    assert left == Counter(then)


@given(COUNTS, COUNTS)
def test_no_card_changes_hands_without_need(now: dict[str, int], then: dict[str, int]) -> None:
    for step in steps(*planned(then), now=running(**now)):
        if step.kind is StepKind.REPLACE:
            sizes = [GPUS[group.type] for group in step.leaving for _ in range(group.count)]
            assert sum(sizes) - min(sizes) < GPUS[step.type]  # each one that leaves was needed for the first to come
