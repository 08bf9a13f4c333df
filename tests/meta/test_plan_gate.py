"""What keeps the meta agent from a step of its plan: each case by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control_agents import PlanPinned, ShortViewReceived
from hmas.contracts.views import PaceView
from hmas.laws.engine_census import EngineCensus
from hmas.laws.plan_steps import InstanceCounts
from hmas.meta.agent.plans.mix_clock import MixClock
from hmas.meta.agent.plans.plan_state import DAY_S, PlanState
from tests.builders.instance_types import CATALOGUE, STEP, pool_plan
from tests.builders.registry import engine_info, worker_heartbeat
from tests.meta.test_meta_agent import COLLAPSED
from tests.meta.test_meta_layouts import demand
from tests.meta.test_meta_plans import SCALE, VIEW, Fleet, about_plans, candidate, decisions, engine, proposed, running

GROWN = candidate(pool_plan(tp4=2), low=0.5)
UP = [("plan", "m: 2 tp4"), ("step", "tp4: 1 to 2")]


def pace(engine: str, times: float, observations: int = 3) -> PaceView:
    return PaceView(
        worker="w", engine=engine, base_s=times * STEP.c0_s, sequence_s=0.0, context_s=0.0, prompt_s=0.0,
        observations=observations,
    )  # fmt: skip


def plans_of_agent(fleet: Fleet) -> PlanState:
    plans = fleet.agent._state.plans
    assert plans is not None
    return plans


def suspect(fleet: Fleet) -> None:
    fleet.engines["a"] = replace(fleet.engines["a"], suspected=True)


def go_down(fleet: Fleet) -> None:
    """Another engine is ordered, and is not there."""
    plans_of_agent(fleet).ordered = {"tp4": 1, "tp1": 1}


def bypass(fleet: Fleet) -> None:
    fleet.view = replace(VIEW, goodput_rate=0.0)
    for i in range(60):
        fleet.at(fleet.now_s + 0.25, ShortViewReceived(replace(COLLAPSED, seq=i)))


def be_slow(*paces: PaceView) -> Callable[[Fleet], None]:
    def slow(fleet: Fleet) -> None:
        fleet.view = replace(VIEW, paces=paces)

    return slow


def miss(fleet: Fleet) -> None:
    for _ in range(SCALE.misses):
        plans_of_agent(fleet).miss(fleet.now_s)


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (suspect, "waits for engines that are suspected: w/a"),
        (go_down, "waits for engines that start or leave: tp1"),
        (bypass, "waits for the end of the bypass of m"),
        (be_slow(pace("a", 1.26)), "waits because a step of tp4 takes 1.26 times what the catalogue says"),
        (be_slow(pace("a", 0.74)), "waits because a step of tp4 takes 0.74 times what the catalogue says"),
        (miss, "stopped for 60 min, since 2 plans gained less than predicted; a pin goes on"),
    ],
)
def test_a_step_is_held_back(happens: Callable[[Fleet], None], reason: str) -> None:
    fleet = running(SCALE, a="tp4")
    happens(fleet)
    fleet.at(fleet.now_s + 1.0)
    effects = fleet.now(proposed(GROWN))
    assert about_plans(effects) == UP[:1]
    assert decisions(effects)[-1].reason == f"searched; {reason}"
    if happens is not miss:
        plans_of_agent(fleet).in_force = None
    if happens is not miss and not reason.startswith("waits because a step"):  # a pin is held back, too
        effects = fleet.at(fleet.now_s + 1.0, PlanPinned(GROWN.plans))
        assert [each for each in about_plans(effects) if each[0] == "step"] == []


@pytest.mark.parametrize("taken", [9, 10])
def test_engines_are_sent_away_ten_times_a_day_and_what_has_begun_ends(taken: int) -> None:
    """An engine goes, and then two come, whatever was done meanwhile."""
    fleet = running(SCALE, a="tp4", b="tp4")
    plans_of_agent(fleet).acted_s.extend([fleet.now_s] * taken)
    effects = fleet.now(proposed(candidate(pool_plan(tp4=1, tp2=2), gain=0.9)))
    plans_of_agent(fleet).acted_s.extend([fleet.now_s] * SCALE.steps_a_day)
    told = decisions(effects)[-1].reason
    fleet.engines.pop("b")
    steps = [each for each in about_plans(effects + fleet.at(fleet.now_s + 5.0)) if each[0] == "step"]
    assert told.endswith("engines were sent away 10 times within a day") == (taken == 10)
    assert steps == ([("step", "tp2: 0 to 2, once 1 tp4 left"), ("step", "tp2: 0 to 2")] if taken == 9 else [])


def test_engines_that_only_come_are_not_counted_nor_held_back() -> None:
    fleet = running(SCALE, a="tp4")
    plans_of_agent(fleet).acted_s.extend([fleet.now_s] * SCALE.steps_a_day)
    assert about_plans(fleet.now(proposed(GROWN))) == UP
    assert len(plans_of_agent(fleet).acted_s) == SCALE.steps_a_day


def test_an_operators_plan_does_not_rest_on_what_the_catalogue_says_of_steps() -> None:
    fleet = running(SCALE, a="tp4")
    be_slow(pace("a", 1.5))(fleet)
    fleet.at(fleet.now_s + 1.0)
    effects = fleet.now(PlanPinned(GROWN.plans))
    assert [each for each in about_plans(effects) if each[0] == "step"] == UP[1:]


@pytest.mark.parametrize(
    "paces",
    [
        (pace("a", 1.24),),
        (pace("a", 0.76),),
        (pace("a", 3.0, observations=2),),
        (pace("x", 3.0),),  # an engine that is not of the catalogue, or not there
    ],
)  # fmt: skip
def test_a_step_as_long_as_the_catalogue_says_holds_nothing_back(paces: tuple[PaceView, ...]) -> None:
    fleet = running(SCALE, a="tp4")
    fleet.view = replace(VIEW, paces=paces)
    fleet.at(21.0)
    assert about_plans(fleet.now(proposed(GROWN))) == UP


def test_the_pace_of_a_type_is_the_mean_of_its_engines() -> None:
    fleet = running(SCALE, a="tp2", b="tp2")
    fleet.view = replace(VIEW, paces=(pace("a", 1.4), pace("b", 1.0)))
    fleet.at(21.0)
    assert about_plans(fleet.now(proposed(candidate(pool_plan(tp2=3), low=0.5))))[1:] == [("step", "tp2: 2 to 3")]


def test_a_day_has_so_many_steps() -> None:
    fleet = running(SCALE, a="tp4", b="tp4")
    plans = plans_of_agent(fleet)
    plans.acted_s.extend([0.0] * 9)
    assert about_plans(fleet.now(proposed(candidate(pool_plan(tp4=1), low=0.5))))[1:] == [("step", "tp4: 2 to 1")]
    assert len(plans.acted_age_s(fleet.now_s)) == 10
    assert len(plans.acted_age_s(DAY_S - 0.1)) == 10
    assert len(plans.acted_age_s(DAY_S)) == 1
    assert plans.acted_age_s(DAY_S + fleet.now_s) == ()


def test_an_old_plan_is_not_begun() -> None:
    for waited_s, begun in ((3580.0, True), (3620.0, False)):
        fleet = running(SCALE, a="tp4")
        suspect(fleet)
        fleet.at(21.0)
        fleet.now(proposed(GROWN))
        fleet.at(21.0 + waited_s)
        fleet.engines["a"] = replace(fleet.engines["a"], suspected=False)
        effects = fleet.at(fleet.now_s + 1.0)
        assert [each for each in about_plans(effects) if each[0] == "step"] == (UP[1:] if begun else [])


def test_a_gain_lasts_as_long_as_the_youngest_mix_of_the_pools_has_held() -> None:
    plans = plans_of_agent(Fleet(SCALE))
    plans.see_mix(0.0, VIEW)
    plans.see_mix(1000.0, replace(VIEW, pool="n"))
    assert plans.horizon_s(2000.0, {"m"}) == 2000.0
    assert plans.horizon_s(2000.0, {"m", "n"}) == 1000.0
    assert plans.horizon_s(2000.0, {"m", "unseen"}) == 600.0
    assert plans.horizon_s(9000.0, {"m"}) == 3600.0


def test_engines_are_counted_until_their_worker_has_been_silent() -> None:
    census = EngineCensus(CATALOGUE)
    engines = (engine("a", "tp4"), engine("b", "tp2", up=False), engine_info("c", hardware="unknown"))
    census.hear(0.0, worker_heartbeat("w", pool="m", engines=engines))
    census.hear(1.0, worker_heartbeat("v", pool="m", engines=(engine("a", "tp4"),), draining=True))
    assert census.counts(3.5, {"tp4": 1, "other2": 0}) == {
        "tp4": InstanceCounts("m", 1, 0, 1), "tp2": InstanceCounts("m", 0, 1, 0), "other2": InstanceCounts("n"),
    }  # fmt: skip
    assert census.counts(3.6, {}) == {"tp4": InstanceCounts("m", 0, 1, 0)}
    assert census.counts(4.6, {"tp4": 1}) == {"tp4": InstanceCounts("m", 0, 1, 0)}
    census.hear(10.0, worker_heartbeat("u", pool="m"))
    assert len(census._beats) == 1


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"arrival_rps": 13.0}, True),
        ({"arrival_rps": 13.1}, False),
        ({"arrival_rps": 7.0}, True),
        ({"arrival_rps": 6.9}, False),
        ({"demands": (demand(0.02, 3.0, 100), demand(0.1, 7.0, 100))}, True),
        ({"demands": (demand(0.02, 2.9, 100), demand(0.1, 7.1, 100))}, False),
        ({"demands": (demand(0.1, 10.0, 100),)}, False),
        ({"demands": (demand(0.02, 0.5, 100), demand(0.1, 0.5, 100))}, True),
    ],
)  # fmt: skip
def test_the_mix_of_requests_holds_until_rate_or_needs_change(changes: dict[str, Any], same: bool) -> None:
    clock = MixClock(0.3, 0.2)
    assert clock.held_s(50.0) == 0.0
    view = replace(VIEW, demands=(demand(0.02, 5.0, 100), demand(0.1, 5.0, 100)))
    clock.see(100.0, view)
    clock.see(150.0, view)
    assert clock.held_s(200.0) == 100.0
    clock.see(200.0, replace(view, **changes))
    assert clock.held_s(210.0) == (110.0 if same else 10.0)
