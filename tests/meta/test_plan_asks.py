"""When the meta agent has plans searched for, and what becomes of what was found."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control_agents import MetaEffect, PlanPinned, PlansSearched, SearchPlans
from tests.builders.instance_types import CATALOGUE, pool_plan
from tests.meta.test_meta_plans import (
    MIXED_PLAN,
    PLAN,
    SCALE,
    VIEW,
    Fleet,
    about_plans,
    candidate,
    decisions,
)

ASKS = replace(PLAN, search_every_s=100.0, search_window_s=30.0, search_requests=200.0, search_cpu_share=0.5)


def asked(effects: list[MetaEffect]) -> list[SearchPlans]:
    return [each for each in effects if isinstance(each, SearchPlans)]


def asking(config: Any = ASKS, **engines: str) -> Fleet:
    return Fleet(config, **(engines or {"a": "tp4", "b": "tp4"}))


def test_plans_are_searched_for_among_what_runs_once_the_past_tells_enough() -> None:
    fleet = asking()
    assert asked(fleet.at(30.0)) == []
    (question,) = asked(fleet.at(40.0))
    assert question.standing == (pool_plan(tp4=2),)
    assert (question.catalogue, question.budgets, question.window_s) == (CATALOGUE, ASKS.budgets, 30.0)


@pytest.mark.parametrize(
    "config", [replace(ASKS, search_every_s=0.0), replace(ASKS, search_requests=301.0)], ids=["off", "few requests"]
)
def test_nothing_is_searched_for(config: Any) -> None:
    assert asked(asking(config).at(90.0)) == []


def test_an_operators_plan_leaves_nothing_to_search() -> None:
    fleet = asking()
    fleet.now(PlanPinned((pool_plan(tp4=2),)))
    assert asked(fleet.at(90.0)) == []
    assert len(asked(fleet.now(PlanPinned(())))) == 1


def test_engines_that_start_are_waited_for() -> None:
    fleet = asking()
    fleet.engines["b"] = replace(fleet.engines["b"], up=False)
    assert asked(fleet.at(60.0)) == []
    fleet.engines["b"] = replace(fleet.engines["b"], up=True)
    assert len(asked(fleet.at(62.0))) == 1


def test_a_search_is_repeated_after_its_time_and_once_it_was_answered() -> None:
    fleet = asking()
    (first,) = asked(fleet.at(40.0))
    assert asked(fleet.at(500.0)) == []  # it is still waited for
    (second,) = asked(fleet.now(PlansSearched(first.number, (), cpu_s=1.0)))
    assert second.number > first.number
    assert len(asked(fleet.at(1200.0))) == 1  # never answered: given up after twice the time-out


def test_what_a_search_costs_is_paid_for_by_a_pause() -> None:
    fleet = asking()
    (first,) = asked(fleet.at(40.0))
    fleet.now(PlansSearched(first.number, (), cpu_s=150.0))
    assert asked(fleet.at(330.0)) == []
    assert len(asked(fleet.at(345.0))) == 1


def test_what_was_found_comes_into_force_if_its_gain_is_clear() -> None:
    fleet = asking(replace(ASKS, acts=SCALE.acts))
    (question,) = asked(fleet.at(40.0))
    effects = fleet.now(PlansSearched(question.number, (MIXED_PLAN,)))
    assert about_plans(effects)[0] == ("plan", "m: 1 tp4, 2 tp2")
    assert decisions(effects)[-1].selector == "search"
    assert asked(fleet.at(200.0)) == []  # the steps are under way


def test_what_was_found_too_late_or_beside_an_operators_plan_is_dropped() -> None:
    fleet = asking()
    (question,) = asked(fleet.at(40.0))
    assert about_plans(fleet.now(PlansSearched(question.number + 1, (MIXED_PLAN,)))) == []
    fleet.now(PlanPinned((pool_plan(tp4=2),)))
    assert about_plans(fleet.now(PlansSearched(question.number, (MIXED_PLAN,)))) == []


def test_a_gain_that_is_not_clear_is_told_as_rejected() -> None:
    fleet = asking()
    (question,) = asked(fleet.at(40.0))
    small = candidate(pool_plan(tp4=1, tp2=2), gain=0.01, low=-0.01)
    (told,) = about_plans(fleet.now(PlansSearched(question.number, (small,))))
    assert told[0] == "rejected"


def test_a_pool_without_requests_is_not_planned() -> None:
    fleet = asking()
    fleet.view = replace(VIEW, arrival_rps=0.0)
    assert asked(fleet.at(60.0)) == []
