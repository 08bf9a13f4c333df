"""The season: engines as an orchestrator runs them, the rivals' rules, and a short day under the agent that ships."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from experiments.plans.cases import HARDWARE, kinds_of
from experiments.season.days import STRICT, PoolLoad, RecordedPool
from experiments.season.orchestrated import DRAIN_S, Orchestrated, hourly_of
from experiments.season.page import OURS, goals_of
from experiments.season.replanned import ReplannedDay
from experiments.season.rivals import DaySearch, by_lateness, by_load, scaled_day
from experiments.season.runs import ORACLE, STATIC, SYSTEMS, SeasonRow, _row
from experiments.season.valuing import EngineNames, SeasonValues
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas_loadgen.traces.servegen import WINDOW_S

KINDS = tuple(replace(kind, start_s=90.0) for kind in kinds_of("llama"))  # 2, 4 and 8 cards
TWO, FOUR = KINDS[0].name, KINDS[1].name
CATALOGUE = Catalogue(KINDS)
HOMES = {kind.name: "llama" for kind in KINDS}
LOW, HIGH = (PoolLoad("llama", (("t4", rate),)) for rate in (2.0, 6.0))


class CountedValues(SeasonValues):
    """Each card keeps one request per second on time."""

    def share(self, load: PoolLoad, engines: EngineNames, seed: int) -> float:
        sizes = {kind.name: kind.gpus for kind in KINDS}
        return min(1.0, sum(sizes[each] for each in engines) / load.rate_rps)


def fleet_of(cards: int = 8, **engines: int) -> Orchestrated:
    fleet = Orchestrated(CATALOGUE, cards)
    fleet.begin({{"two": TWO, "four": FOUR}[name]: count for name, count in engines.items()})
    return fleet


def test_an_engine_waits_for_cards_that_another_one_holds_until_it_has_drained() -> None:
    fleet = fleet_of(cards=4, four=1)
    fleet.order({FOUR: 0, TWO: 1})
    for now_s in (100.0, 100.0 + DRAIN_S - 1.0, 100.0 + DRAIN_S):
        fleet.work(now_s)
    pieces = [(first, last, engines["llama"]) for first, last, engines in fleet.serving(HOMES)]
    assert pieces[:3] == [(0.0, 100.0, (FOUR,)), (100.0, 250.0, ()), (250.0, 86400.0, (TWO,))]
    assert fleet.card_hours() == pytest.approx((4 * 160.0 + 2 * (86400.0 - 160.0)) / 3600.0)


def test_the_newest_engine_leaves_and_what_never_served_is_not_counted_as_serving() -> None:
    fleet = fleet_of(four=1)
    fleet.order({FOUR: 2})
    fleet.work(10.0)
    fleet.order({FOUR: 1})
    fleet.work(50.0)
    assert [(each.up_s, each.left_s) for each in fleet.engines] == [(0.0, 86400.0), (100.0, 50.0)]
    assert {engines["llama"] for _, _, engines in fleet.serving(HOMES)} == {(FOUR,)}


def test_requests_of_each_piece_are_judged_by_its_engines() -> None:
    fleet = fleet_of(two=1)
    fleet.order({TWO: 2})
    fleet.work(1710.0)
    loads = ((HIGH,),) * 3 + ((LOW,),) * 141
    hours = hourly_of(fleet.serving(HOMES), loads, CountedValues(), 1)
    assert list(hours[0]) == pytest.approx([6.0 * 1800 + 2.0 * 1800, 2.0 * 1800 + 2.0 * 1800])
    assert len(hours) == 24


def test_replicas_follow_lateness_and_load() -> None:
    late, most = by_lateness(CountedValues()), {TWO: 2.0}
    assert [late(HIGH, TWO, now) for now in (2, 3, 4, 5)] == [3, 3, 3, 4]
    assert [by_load(most, 1.0)(HIGH, TWO, 1), by_load(most, 0.6)(HIGH, TWO, 1), by_load(most, 1.0)(LOW, TWO, 9)] == [
        3, 5, 1
    ]  # fmt: skip


def test_scaled_replicas_stay_within_the_cards() -> None:
    fleet = fleet_of(cards=8, four=1)
    ordered_s = scaled_day(fleet, (("llama", (FOUR,)),), ((HIGH,),) * 144, by_lateness(CountedValues()))
    assert (ordered_s, fleet.ordered) == ([300.0], {FOUR: 2})
    tight = fleet_of(cards=4, four=1)
    assert scaled_day(tight, (("llama", (FOUR,)),), ((HIGH,),) * 144, by_lateness(CountedValues())) == []


def test_the_shipped_agent_orders_what_the_load_calls_for_once() -> None:
    """Half an hour at a rate that one small engine cannot carry, with two cards free: one with four is ordered in its
    place, which takes two steps."""
    load = PoolLoad("llama", (("t4", 3.0),))
    fleet = fleet_of(cards=4, two=1)
    values, budget = SeasonValues(), Budget(HARDWARE, 4)
    search = DaySearch(CATALOGUE, budget, values)
    day = ReplannedDay(CATALOGUE, budget, ((load,),) * 3, values, search, fleet, seconds=3 * WINDOW_S)
    ordered_s = day.run()
    assert (fleet.ordered, len(ordered_s)) == ({TWO: 0, FOUR: 1}, 2)
    assert [each.up_s - each.began_s for each in fleet.there(3 * WINDOW_S)] == [90.0]


def test_the_mix_turns_with_the_clients() -> None:
    pool = RecordedPool(pool="llama", recording="m-mid", day=0, mean_rps=10.0)
    assert pool.part_of("7") == STRICT != pool.part_of("8")


def row(system: str, shares: Sequence[float], **changes: Any) -> SeasonRow:
    plain: dict[str, Any] = {"card_hours": 288.0, "orders": 4, "worst_hour": -0.2, "worst_own_hour": -0.2}
    return SeasonRow(day="m-small 0, deepseek-r1", cards=12, system=system, shares=list(shares), **plain | changes)


@pytest.mark.parametrize(
    ("own", "changes", "met"),
    [
        ((0.93, 0.94, 0.93), {}, (True, True, True, True)),
        ((0.91, 0.92, 0.91), {}, (False, False, True, True)),
        ((0.93, 0.94, 0.93), {"worst_own_hour": -0.5}, (True, True, False, True)),
        ((0.93, 0.94, 0.93), {"orders": 21}, (True, True, True, False)),
    ],
)
def test_goals_are_judged_by_the_rows(own: Sequence[float], changes: dict[str, Any], met: tuple[bool, ...]) -> None:
    rows = [row(STATIC, (0.90, 0.91, 0.90)), row(OURS, own, **changes), row(ORACLE, (0.935, 0.945, 0.935))]
    first, *_, way, hour, steps = (goal.met for goal in goals_of(rows))
    assert (first, way, hour, steps) == met


def test_equal_shares_on_fewer_cards_are_worth_it() -> None:
    rows = [
        row(STATIC, (0.90, 0.91)), row(OURS, (0.915, 0.925), card_hours=280.0),
        replace(row(STATIC, (0.916, 0.926), card_hours=336.0), cards=14),
    ]  # fmt: skip
    assert goals_of(rows)[0].met
    later = [*rows[:2], replace(row(STATIC, (0.93, 0.94), card_hours=336.0), cards=14)]
    assert not goals_of(later)[0].met


def test_a_row_tells_the_worst_hours_beside_the_static_plan() -> None:
    hours = 24
    same = {"on_time": [[90.0] * hours], "card_hours": 1.0, "ordered_s": []}
    own = {"on_time": [[95.0, 89.0, 80.0] + [91.0] * (hours - 3)], "card_hours": 1.0, "ordered_s": [10.0]}
    systems = dict.fromkeys(SYSTEMS, same) | {OURS: own}
    found = _row("d", 12, OURS, {"systems": systems, "requests": [100.0] * hours})
    assert [found.worst_hour, found.worst_own_hour] == pytest.approx([-10.0, -1.0])
