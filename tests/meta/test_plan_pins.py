"""An operator's plans: the console's outranks the file's, what ran before is known, and lifting leaves what runs."""

from dataclasses import replace

import pytest

from hmas.contracts.control import Split
from hmas.contracts.control_agents import EpochGranted, EpochLost, PlanPinChanged, PlanPinned, PlanRestored
from hmas.contracts.pool_plan import PlanDecision, PlannedType, PlanPin, PoolPlan
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import PlanConfig
from tests.builders.instance_types import pool_plan
from tests.meta.test_meta_agent import kinds, records
from tests.meta.test_meta_plans import (
    PLAN,
    ROUTING,
    SCALE,
    Fleet,
    about_plans,
    candidate,
    decisions,
    done,
    engine,
    ordered,
    proposed,
    running,
)

TWO4, GROWN, OTHER = pool_plan(tp4=2), pool_plan(tp4=1, tp2=2), pool_plan(tp2=4)


def console(*plans: PoolPlan) -> PlanPinChanged:
    return PlanPinChanged(PlanPin(plans=plans, by="the console"))


def told(fleet: Fleet, wait_s: float = 6.0) -> PlanDecision:
    return decisions(fleet.at(fleet.now_s + wait_s))[-1]


def test_a_plan_of_the_console_outranks_proposals_and_is_told_as_its_own() -> None:
    fleet = running()
    effects = fleet.now(console(GROWN))
    assert about_plans(effects) == [("plan", "m: 1 tp4, 2 tp2"), ("step", "tp2: 0 to 2, once 1 tp4 left")]
    (first, *_) = records(effects)
    assert (first.selector, first.reason) == ("console", "pinned by the console")
    assert decisions(effects)[-1].selector == "console"
    rejected = records(fleet.now(proposed(candidate(OTHER, low=0.5))))
    assert [(each.kind, each.reason) for each in rejected] == [("rejected", "an operator's plan is in force")]
    assert fleet.now(console(GROWN)) == []  # read again after a reconnection


def test_a_plan_of_the_console_outranks_a_file_until_it_is_lifted() -> None:
    fleet = running()
    fleet.now(PlanPinned((TWO4,)))
    assert about_plans(fleet.now(console(GROWN)))[0] == ("plan", "m: 1 tp4, 2 tp2")
    (refused,) = records(fleet.now(PlanPinned((OTHER,))))
    assert (refused.kind, refused.selector) == ("rejected", "pin")
    assert refused.reason == "the plan that the console pinned outranks it until that is lifted"
    assert told(fleet).selector == "console"
    effects = fleet.now(console())
    assert kinds(effects)[:2] == [("unpinned", "plan"), ("plan", "m: 4 tp2")]
    assert told(fleet).selector == "pin"


def test_a_file_that_goes_while_the_console_rules_changes_nothing() -> None:
    fleet = running()
    fleet.now(PlanPinned((TWO4,)), console(GROWN))
    assert kinds(fleet.now(PlanPinned(()))) == [("unpinned", "plan")]
    assert (told(fleet).selector, told(fleet).plans) == ("console", (GROWN,))
    fleet.now(console())
    after = told(fleet)
    assert (after.selector, after.plans) == ("plan", (GROWN,))
    assert after.reason.startswith("kept after an operator's plan was lifted")
    assert fleet.now(console()) == []


def test_a_faulty_plan_of_the_console_is_rejected_and_not_kept() -> None:
    fleet = running()
    assert about_plans(fleet.now(console(pool_plan(tp4=3)))) == [("rejected", "m: 3 tp4")]
    assert about_plans(fleet.now(proposed(candidate(GROWN))))[0][0] == "plan"


def test_without_a_catalogue_nothing_is_pinned() -> None:
    fleet = running(replace(SCALE, catalogue=None))
    assert fleet.now(console(GROWN)) == []


# --- what ran before


def test_what_ran_before_a_plan_is_told_and_leads_back() -> None:
    fleet = running()
    first = decisions(fleet.now(proposed(candidate(GROWN))))[-1]
    assert first.before == (TWO4,)
    fleet.now(console(*first.before))  # rolled back in the middle, when a tp4 had been told to leave
    back = told(fleet)
    assert (back.plans, ordered(fleet.at(fleet.now_s + 6.0))) == ((TWO4,), {"tp2": 0, "tp4": 2})
    assert back.before == (pool_plan(tp4=1),)


def test_a_plan_that_changes_nothing_has_the_before_of_the_one_it_follows() -> None:
    fleet = running(SCALE, a="tp4")
    assert decisions(fleet.now(proposed(candidate(pool_plan(tp4=1)))))[-1].before == ()
    fleet.now(proposed(candidate(TWO4)))
    fleet.engines["b"] = engine("b", "tp4")
    fleet.at(40.0)
    fleet.now(PlanPinned((PoolPlan(pool="m", groups=TWO4.groups, split=Split((0.02,), (1, 1))),)))
    assert told(fleet).before == (TWO4,)  # with other classes


def test_the_classes_that_ran_before_come_back() -> None:
    fleet = running(ROUTING, a="tp4", c="tp2", d="tp2")
    split = Split((0.02,), (2, 1))
    groups = pool_plan(tp2=2, tp4=1).groups
    fleet.now(proposed(candidate(PoolPlan(pool="m", groups=groups, split=split))))
    before = told(fleet).before
    assert [each.split for each in before] == [Split()]
    assert about_plans(fleet.now(console(*before)))[1:] == [("step", "mixed")]


# --- a plan that is in force already


def test_an_applied_plan_keeps_what_is_expected_of_it_and_what_ran_before() -> None:
    fleet = running()
    first = decisions(fleet.now(proposed(candidate(GROWN))))[-1]
    fleet.now(console(*first.plans))
    applied = told(fleet)
    assert (applied.selector, applied.expected, applied.before) == ("console", first.expected, (TWO4,))
    assert applied.reason.startswith("pinned by the console")


def test_an_applied_plan_goes_on_where_doubts_held_it_back() -> None:
    fleet, _ = done(0.94)
    assert fleet.agent._state.plans is not None
    fleet.agent._state.plans.miss(fleet.now_s)  # the second one
    shrunk = pool_plan(tp4=1)
    effects = fleet.now(proposed(candidate(shrunk, low=0.5)))
    assert about_plans(effects) == [("plan", "m: 1 tp4")]
    assert about_plans(fleet.now(console(shrunk))) == [("plan", "m: 1 tp4"), ("step", "tp4: 2 to 1")]


def test_what_came_of_an_applied_plan_is_compared_with_what_was_predicted() -> None:
    fleet = running(SCALE, a="tp4")
    fleet.now(proposed(candidate(TWO4)), console(TWO4))
    fleet.engines["b"] = engine("b", "tp4")
    fleet.view = replace(fleet.view, goodput_rate=0.97)
    (record,) = [each for each in records(fleet.at(200.0)) if each.kind == "outcome"]
    assert record.predicted_gain == pytest.approx(0.2)
    assert record.observed_gain == pytest.approx(0.17)


def test_a_plan_that_is_only_advice_is_not_carried_out_for_being_applied() -> None:
    fleet = running(PLAN)
    effects = fleet.now(proposed(candidate(GROWN)), console(GROWN)) + fleet.at(60.0)
    assert {each.ordered for each in decisions(effects)} == {()}


# --- what is told, and other copies


@pytest.mark.parametrize("config", [PLAN, ROUTING, SCALE])
def test_a_decision_says_how_far_the_controller_goes_and_which_types_it_is_about(config: PlanConfig) -> None:
    fleet = running(config, a="tp4", c="tp1")
    decision = decisions(fleet.now(proposed(candidate(GROWN))))[-1]
    assert decision.acts == config.acts.value
    assert decision.types == tuple(
        PlannedType(name=f"tp{gpus}", model="m", hardware="h100", gpus=gpus) for gpus in (1, 2, 4)
    )


def test_another_copy_with_the_pin_keeps_what_is_known_of_the_plan() -> None:
    last = running()
    last.now(proposed(candidate(GROWN)), console(GROWN))
    decision = told(last)
    for events in ((console(GROWN), PlanRestored(decision)), (PlanRestored(decision), console(GROWN))):
        fleet = Fleet(SCALE, a="tp4")
        fleet.agent = MetaAgent(fleet.config)
        fleet.now(EpochLost(), *events)
        fleet.now(EpochGranted(4))
        then = told(fleet, 12.0)
        assert (then.plans, then.selector, then.before) == ((GROWN,), "console", (TWO4,))
        assert then.expected == decision.expected
        assert fleet.agent._state.plans is not None
        assert fleet.agent._state.plans.pinned
