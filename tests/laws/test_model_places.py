"""Which model sleeps and which wakes: places, worth, interrupts, and who is hurt."""

from dataclasses import replace

import pytest

from hmas.contracts.residency import EngineDemand
from hmas.laws.model_places import ResidencyRules, Resident, fewest, next_switch

RULES = ResidencyRules()


def model(name: str, *, awake: bool = False, gb: float = 20.0, **demand: float | tuple[float, ...]) -> Resident:
    return Resident(
        engine=name, awake=awake, held_gb=gb if awake else 0.0, awake_gb=gb, asleep_gb=0.0, sleep_s=1.0, ready_s=2.0,
        interrupts=True, movable=True, fresh=False, idle_s=0.0,
        demand=EngineDemand(engine=name, **demand),  # type: ignore[arg-type]
    )  # fmt: skip


def chosen(*residents: Resident, card_gb: float = 20.0, rules: ResidencyRules = RULES) -> tuple[str, tuple[str, ...]]:
    found = next_switch(card_gb, residents, rules)
    return ("", ()) if found is None else (found.target, found.victims)


def test_the_next_model_is_that_with_the_most_callers_on_time_per_second_of_moving() -> None:
    small = replace(model("small", latest_s=(9.0,)), ready_s=0.5)
    big = model("big", latest_s=(9.0, 9.0, 9.0), oldest_s=5.0)
    assert chosen(small, big) == ("small", ())
    assert chosen(small, replace(big, demand=replace(big.demand, latest_s=(9.0,) * 5))) == ("big", ())
    assert chosen(small, big, rules=ResidencyRules(by_worth=False)) == ("big", ())


def test_a_caller_whom_moving_makes_late_counts_for_nothing() -> None:
    assert chosen(model("a", latest_s=(1.9,) * 9), model("b", latest_s=(2.1,))) == ("b", ())


def test_late_callers_hold_no_place_but_against_late_ones() -> None:
    holder = model("a", awake=True, late=3, late_runs=1)
    assert chosen(holder, model("b", latest_s=(9.0,))) == ("b", ("a",))
    assert chosen(holder, model("b", late=5)) == ("", ())
    assert chosen(model("a", awake=True), model("b", late=5)) == ("b", ("a",))


def test_the_least_recently_used_goes_and_nobody_more_than_needed() -> None:
    old, new = replace(model("old", awake=True), idle_s=2.0), replace(model("new", awake=True), idle_s=1.0)
    assert chosen(new, old, model("c", latest_s=(9.0,)), card_gb=40.0) == ("c", ("old",))
    small = replace(model("small", awake=True, gb=5.0), idle_s=3.0)
    assert fewest(20.0, [small, old]) == [old]
    assert fewest(30.0, [small, old]) is None


@pytest.mark.parametrize(
    ("spare_s", "late", "switches"),
    [
        (11.9, 5.0, False),  # it is away for 1 + 2 s, while the other serves for 6, and for 1 + 2 s more
        (12.1, 5.0, True),
        (12.1, 60.0, False),  # it ends by itself before anybody is late
        (12.1, 2.5, False),  # too late already
    ],
)
def test_who_serves_is_interrupted_only_where_somebody_gains_and_nobody_becomes_late(
    spare_s: float, late: float, switches: bool
) -> None:
    a = model("a", awake=True, spare_s=(spare_s,), drain_s=30.0)
    assert chosen(a, model("b", latest_s=(late,), serve_s=6.0))[0] == ("b" if switches else "")


def test_callers_that_wait_at_the_victim_are_hurt_like_its_runs() -> None:
    b = model("b", latest_s=(5.0, 5.0), serve_s=6.0)
    a = model("a", awake=True, spare_s=(99.0,), drain_s=30.0, latest_s=(11.0,))
    assert chosen(a, b) == ("", ())
    assert chosen(a, b, rules=ResidencyRules(check_hurt=False)) == ("b", ("a",))
    a = replace(a, demand=replace(a.demand, latest_s=(13.0,)))
    assert chosen(a, b) == ("b", ("a",))
    assert chosen(a, b, rules=ResidencyRules(interrupts=False)) == ("", ())


def test_kept_runs_bring_their_model_back_like_callers() -> None:
    a = model("a", awake=True, spare_s=(50.0,), drain_s=30.0)
    assert chosen(a, model("b", spare_s=(5.0,), serve_s=1.0)) == ("b", ("a",))
