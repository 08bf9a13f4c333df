"""Plans of the meta agent: which one comes into force, what it leads to, what is told of it, and what came of it."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.control import MIXED, Split
from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    LongViewReceived,
    MetaEffect,
    PlanPinned,
    PlanRestored,
    PlansProposed,
    PublishLayout,
    PublishPlan,
    TimerTicked,
)
from hmas.contracts.pool_plan import Budget, ExpectedShare, Group, PlanCandidate, PlanDecision, PoolPlan
from hmas.contracts.registry import EngineInfo, HeartbeatReceived
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import LayoutConfig, MetaConfig, PlanActs, PlanConfig
from hmas.meta.agent.plans.plan_state import DAY_S
from hmas.meta.agent.pool import Decider
from tests.builders.instance_types import CATALOGUE, pool_plan
from tests.builders.registry import engine_info, worker_heartbeat
from tests.builders.views import v_long
from tests.meta.test_meta_agent import kinds, records

PLAN = PlanConfig(catalogue=CATALOGUE, budgets=(Budget("h100", 8), Budget("l40s", 2)))
SCALE = replace(PLAN, acts=PlanActs.SCALE)
ROUTING = replace(PLAN, acts=PlanActs.ROUTING)
NAMES = {each.name: (each.model, f"{each.hardware}x{each.gpus}") for each in CATALOGUE.types}
VIEW = replace(v_long(), arrival_rps=10.0, goodput_rate=0.8)


def engine(name: str, kind: str, **changes: Any) -> EngineInfo:
    model, hardware = NAMES[kind]
    return engine_info(name, model=model, hardware=hardware, **changes)


def candidate(*plans: PoolPlan, gain: float = 0.2, low: float | None = None) -> PlanCandidate:
    expected = tuple(
        ExpectedShare(pool=each.pool, share=0.7 + gain, low=0.7 + (gain if low is None else low), high=1.0, before=0.7)
        for each in plans
    )
    return PlanCandidate(plans=plans, expected=expected, bound=0.99, reason="searched")


class Fleet:
    """An agent, and engines that are what the test says. Time goes on by `at`."""

    def __init__(self, config: PlanConfig = SCALE, **engines: str) -> None:
        self.config = MetaConfig(plan=config, layout=LayoutConfig(adaptive=False))
        self.agent = MetaAgent(self.config)
        self.engines = {name: engine(name, kind) for name, kind in engines.items()}
        self.pool, self.view = "m", VIEW
        self.now_s = 0.0
        self.agent.step(0.0, EpochGranted(3))

    def at(self, now_s: float, *events: Any) -> list[MetaEffect]:
        """Lets heartbeats, a view and ticks come until `now_s`, and then the events and a tick."""
        effects: list[MetaEffect] = []
        while self.now_s < now_s:
            self.now_s = min(self.now_s + 1.0, now_s)
            beat = worker_heartbeat("w", pool=self.pool, engines=tuple(self.engines.values()))
            for event in (HeartbeatReceived(beat), LongViewReceived(self.view), TimerTicked()):
                effects += self.agent.step(self.now_s, event)
        for event in (*events, TimerTicked()):
            effects += self.agent.step(self.now_s, event)
        return effects

    def now(self, *events: Any) -> list[MetaEffect]:
        return self.at(self.now_s, *events)


def decisions(effects: list[MetaEffect]) -> list[PlanDecision]:
    return [each.decision for each in effects if isinstance(each, PublishPlan)]


def ordered(effects: list[MetaEffect]) -> dict[str, int]:
    return {each.type: each.count for each in decisions(effects)[-1].ordered}


def about_plans(effects: list[MetaEffect]) -> list[tuple[str, str]]:
    return [each for each in kinds(effects) if each[0] in ("plan", "step", "rejected", "outcome", "rolled_back")]


def proposed(*candidates: PlanCandidate) -> PlansProposed:
    return PlansProposed(candidates, "search")


def running(config: PlanConfig = SCALE, **engines: str) -> Fleet:
    fleet = Fleet(config, **(engines or {"a": "tp4", "b": "tp4"}))
    fleet.at(20.0)
    return fleet


MIXED_PLAN = candidate(pool_plan(tp4=1, tp2=2))


def test_without_a_catalogue_there_are_no_plans() -> None:
    fleet = running(PlanConfig())
    effects = fleet.now(proposed(MIXED_PLAN), PlanPinned((pool_plan(tp4=1),))) + fleet.at(40.0)
    assert (decisions(effects), about_plans(effects)) == ([], [])


def test_a_catalogue_alone_says_nothing() -> None:
    fleet = Fleet(SCALE, a="tp4")
    assert decisions(fleet.at(60.0)) == []


@pytest.mark.parametrize("config", [PLAN, ROUTING])
def test_advice_tells_plan_and_steps_and_orders_nothing(config: PlanConfig) -> None:
    fleet = running(config)
    effects = fleet.now(proposed(MIXED_PLAN))
    assert about_plans(effects) == [("plan", "m: 1 tp4, 2 tp2")]
    (decision,) = decisions(effects)
    (step,) = decision.steps
    assert (step.type, step.leaving) == ("tp2", (Group("tp4", 1),))
    assert (decision.plans, decision.expected, decision.bound) == (MIXED_PLAN.plans, MIXED_PLAN.expected, 0.99)
    assert (decision.ordered, decision.epoch, decision.valid_for_s, decision.selector) == ((), 3, 15.0, "search")
    assert decision.reason == f"searched; advice alone: HMAS_PLAN={config.acts}"
    assert [d.ordered for d in decisions(fleet.at(200.0))][-1] == ()


def test_a_replacement_is_taken_a_step_at_a_time_and_repeated() -> None:
    fleet = running()
    effects = fleet.now(proposed(MIXED_PLAN))
    assert about_plans(effects) == [("plan", "m: 1 tp4, 2 tp2"), ("step", "tp2: 0 to 2, once 1 tp4 left")]
    assert ordered(effects) == {"tp2": 0, "tp4": 1}
    assert decisions(effects)[-1].reason == "searched; waits for engines that start or leave: tp4"
    fleet.engines["b"] = replace(fleet.engines["b"], up=False)  # it drains
    effects = fleet.at(30.0)
    assert (about_plans(effects), ordered(effects)) == ([], {"tp2": 0, "tp4": 1})
    assert decisions(effects)[-1].reason == "searched; waits for engines that start or leave: tp4"
    del fleet.engines["b"]
    effects = fleet.at(31.0)
    assert (about_plans(effects), ordered(effects)) == ([("step", "tp2: 0 to 2")], {"tp2": 2, "tp4": 1})
    fleet.engines["c"] = engine("c", "tp2")
    assert about_plans(fleet.at(60.0)) == []
    fleet.engines["d"] = engine("d", "tp2")
    told = decisions(fleet.at(80.0))
    assert (told[-1].steps, told[-1].reason) == ((), "searched")
    assert len(told) == 4  # one for the change, and then every 5 s
    assert [d.seq for d in told] == sorted({d.seq for d in told})


def test_no_plan_is_followed_before_all_workers_can_have_been_heard() -> None:
    fleet = Fleet(SCALE, a="tp4")
    fleet.at(1.0)
    assert decisions(fleet.at(10.9, proposed(candidate(pool_plan(tp4=2))))) == []
    assert ordered(fleet.at(11.0)) == {"tp4": 2}


@pytest.mark.parametrize(
    ("plans", "reason"),
    [
        ((pool_plan(tp4=3),), "it takes 12 h100, and the budget has 8"),
        ((pool_plan("n", other2=1),), "it leaves out the pool m"),
        ((pool_plan(tp8=1),), "the catalogue has no instance type tp8"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_rejected(plans: tuple[PoolPlan, ...], reason: str) -> None:
    effects = running().now(proposed(candidate(*plans)))
    assert [(r.kind, r.reason) for r in records(effects)] == [("rejected", reason)]


@pytest.mark.parametrize(
    ("low", "taken"),
    # A replacement takes 4 cards for 160 s of the 8 that serve 10 requests per second: 800 requests. The mix of
    # requests has held for less than the least horizon of 600 s.
    [(0.134, True), (0.133, False), (0.0, False), (-0.1, False)],
)
def test_the_low_end_of_the_gain_must_outweigh_the_steps(low: float, taken: bool) -> None:
    effects = running().now(proposed(candidate(pool_plan(tp4=1, tp2=2), gain=0.2, low=low)))
    assert about_plans(effects)[0][0] == ("plan" if taken else "rejected")
    if not taken:
        reason = f"no clear gain: {6000 * low:.0f} more requests on time, 800 lost by its steps"
        assert records(effects)[0].reason == reason


def test_the_longer_the_mix_has_held_the_longer_a_gain_counts() -> None:
    small = proposed(candidate(pool_plan(tp4=1, tp2=2), low=0.03))
    for now_s, taken in ((1200.0, False), (2800.0, True)):
        fleet = running()
        fleet.at(now_s)
        assert bool(about_plans(fleet.now(small))[0][0] == "plan") is taken
    fleet = running()
    fleet.at(2700.0)
    fleet.view = replace(VIEW, arrival_rps=14.0)
    fleet.at(2800.0)
    assert about_plans(fleet.now(small))[0][0] == "rejected"


def test_of_several_plans_the_one_that_gains_most_is_taken() -> None:
    best = candidate(pool_plan(tp4=1, tp2=2), low=0.2)
    found = (candidate(pool_plan(tp2=4), low=0.2), best, candidate(pool_plan(tp4=2, tp2=1)))
    effects = running().now(proposed(*found))
    assert about_plans(effects)[:2] == [
        ("rejected", "m: 2 tp4, 1 tp2"), ("plan", "m: 1 tp4, 2 tp2"),
    ]  # fmt: skip
    assert records(effects)[1].predicted_gain == pytest.approx(0.2)


def test_a_plan_that_cannot_be_carried_out_does_not_hide_those_after_it() -> None:
    faulty = candidate(pool_plan(tp4=9), low=0.9)
    effects = running().now(proposed(faulty, MIXED_PLAN))
    assert about_plans(effects)[:2] == [("rejected", "m: 9 tp4"), ("plan", "m: 1 tp4, 2 tp2")]


def test_what_runs_is_accepted_as_a_plan_without_a_gain() -> None:
    effects = running().now(proposed(candidate(pool_plan(tp4=2), gain=0.0)))
    assert about_plans(effects) == [("plan", "m: 2 tp4")]
    assert ordered(effects) == {"tp4": 2}


def test_a_plan_is_not_replaced_while_its_steps_are_under_way() -> None:
    fleet = running()
    fleet.now(proposed(MIXED_PLAN))
    other = proposed(candidate(pool_plan(tp2=4), low=0.5))
    effects = fleet.now(proposed(MIXED_PLAN), other)
    assert [(r.kind, r.reason) for r in records(effects)] == [
        ("rejected", "the steps of the plan before it are not over")
    ]
    fleet.engines = {name: engine(name, kind) for name, kind in (("a", "tp4"), ("c", "tp2"), ("d", "tp2"))}
    fleet.at(30.0)
    assert about_plans(fleet.now(other))[0] == ("plan", "m: 4 tp2")


def test_a_gain_that_has_gone_before_the_first_step_is_not_acted_on() -> None:
    fleet = running()
    fleet.engines["b"] = replace(fleet.engines["b"], suspected=True)
    fleet.at(21.0)
    fleet.now(proposed(candidate(pool_plan(tp4=1, tp2=2), low=0.14)))
    fleet.view = replace(VIEW, arrival_rps=0.0)
    fleet.engines["b"] = replace(fleet.engines["b"], suspected=False)
    effects = fleet.at(30.0)
    assert about_plans(effects) == []
    assert decisions(effects)[-1].reason == "searched; its gain no longer outweighs its steps"


def test_a_plan_that_has_begun_is_carried_out_whatever_its_gain_is_now() -> None:
    fleet = running()
    fleet.now(proposed(MIXED_PLAN))
    fleet.view = replace(VIEW, arrival_rps=0.0)
    del fleet.engines["b"]
    assert about_plans(fleet.at(30.0)) == [("step", "tp2: 0 to 2")]


def test_engines_that_somebody_else_started_are_kept_as_far_as_the_plan_and_the_budget_go() -> None:
    for started, kept in ((1, 1), (4, 2)):  # the other four cards are those of the engine that stays
        fleet = running()
        fleet.now(proposed(candidate(pool_plan(tp2=4), low=0.5)))
        fleet.engines |= {name: engine(name, "tp2") for name in "cdef"[:started]}
        assert ordered(fleet.at(21.0)) == {"tp2": kept, "tp4": 1}


def test_several_engines_leave_for_one() -> None:
    fleet = running(SCALE, a="tp2", b="tp2", c="tp2", d="tp2")
    effects = fleet.now(proposed(candidate(pool_plan(tp2=2, tp4=1))))
    assert about_plans(effects)[1] == ("step", "tp4: 0 to 1, once 2 tp2 left")
    assert ordered(effects) == {"tp2": 2, "tp4": 0}


def test_a_pool_whose_last_engine_has_gone_need_not_be_planned() -> None:
    fleet = running(SCALE, a="tp4")
    assert fleet.agent._state.plans is not None
    fleet.agent._state.plans.ordered = {"tp4": 1, "other2": 0}
    assert about_plans(fleet.now(proposed(candidate(pool_plan(tp4=2)))))[0][0] == "plan"


# --- an operator's plan


def test_an_operators_plan_outranks_proposals_and_needs_no_gain() -> None:
    fleet = running()
    pinned = PlanPinned((pool_plan(tp4=1, tp2=2),))
    effects = fleet.now(pinned)
    assert about_plans(effects) == [("plan", "m: 1 tp4, 2 tp2"), ("step", "tp2: 0 to 2, once 1 tp4 left")]
    assert decisions(effects)[-1].selector == "pin"
    effects = fleet.now(proposed(candidate(pool_plan(tp2=4), low=0.5)))
    assert records(effects)[0].reason == "an operator's plan is in force"
    assert kinds(fleet.now(PlanPinned(()))) == [("unpinned", "plan")]
    fleet.engines = {name: engine(name, kind) for name, kind in (("a", "tp4"), ("c", "tp2"), ("d", "tp2"))}
    fleet.at(60.0)
    assert about_plans(fleet.now(proposed(candidate(pool_plan(tp2=4), low=0.5))))[0][0] == "plan"


def test_an_operators_plan_of_too_many_cards_is_rejected() -> None:
    fleet = running()
    effects = fleet.now(PlanPinned((pool_plan(tp4=3),)))
    assert about_plans(effects) == [("rejected", "m: 3 tp4")]
    assert decisions(effects) == []
    assert about_plans(fleet.now(proposed(MIXED_PLAN)))[0][0] == "plan"


# --- classes

SPLIT = Split((0.02,), (2, 1))
SPLIT_PLAN = candidate(PoolPlan(pool="m", groups=(Group("tp2", 2), Group("tp4", 1)), split=SPLIT))


def test_classes_change_once_their_engines_are_there_in_the_order_of_the_groups() -> None:
    for config, changed in ((PLAN, False), (ROUTING, True), (SCALE, True)):
        fleet = running(config, a="tp4", c="tp2", d="tp2")
        effects = fleet.now(proposed(SPLIT_PLAN))
        layouts = [each.decision.layout for each in effects if isinstance(each, PublishLayout)]
        assert about_plans(effects)[1:] == ([("step", "<= 20 ms: 2, > 20 ms: 1")] if changed else [])
        assert decisions(effects)[-1].steps == (() if changed else decisions(effects)[-1].steps[:1])
        if changed:
            assert [(each.place, each.pace_class) for each in layouts[-1].engines] == [
                ("w/c", 0), ("w/d", 0), ("w/a", 1),
            ]  # fmt: skip


def test_the_layout_refines_the_classes_of_a_plan_from_then_on() -> None:
    fleet = running(ROUTING, a="tp4", c="tp2", d="tp2")
    fleet.now(proposed(SPLIT_PLAN))
    (pool,) = fleet.agent._state.pools.values()
    pool.lay_out(fleet.now_s, Split((0.03,), (1, 2)), (), 60.0, "measured", "pace")
    assert about_plans(fleet.at(100.0)) == []


def test_classes_wait_for_their_engines_and_for_the_end_of_a_bypass() -> None:
    fleet = running(ROUTING, a="tp4", c="tp2")
    effects = fleet.now(proposed(SPLIT_PLAN)) + fleet.at(40.0)
    assert all(each.decision.layout == MIXED for each in effects if isinstance(each, PublishLayout))
    fleet = running(ROUTING, a="tp4", c="tp2", d="tp2")
    (pool,) = fleet.agent._state.pools.values()
    pool.enter(fleet.now_s, Decider.BYPASSED)
    assert about_plans(fleet.now(proposed(SPLIT_PLAN)))[1:] == []
    pool.enter(fleet.now_s, Decider.FREE)
    assert about_plans(fleet.at(30.0)) == [("step", "<= 20 ms: 2, > 20 ms: 1")]


def test_classes_cost_nothing_and_must_gain_something() -> None:
    for low, kind in ((0.0, "rejected"), (0.01, "plan")):
        fleet = running(ROUTING, a="tp4", c="tp2", d="tp2")
        found = candidate(*SPLIT_PLAN.plans, low=low)
        assert about_plans(fleet.now(proposed(found)))[0][0] == kind


# --- what came of it


def done(share: float, *, until_s: float = 200.0) -> tuple[Fleet, list[MetaEffect]]:
    """A plan that was carried out, after which that share is on time."""
    fleet = running(SCALE, a="tp4")
    fleet.now(proposed(candidate(pool_plan(tp4=2))))
    fleet.engines["b"] = engine("b", "tp4")
    fleet.view = replace(VIEW, goodput_rate=share)
    return fleet, fleet.at(until_s)


def test_what_a_plan_gained_is_compared_with_what_was_predicted() -> None:
    fleet, effects = done(0.97, until_s=150.0)  # the engine came by 21 s, and 130 s are to pass
    assert [each for each in records(effects) if each.kind == "outcome"] == []
    effects = fleet.at(151.0)
    (record,) = [each for each in records(effects) if each.kind == "outcome"]
    assert record.predicted_gain == pytest.approx(0.2)
    assert record.observed_gain == pytest.approx(0.17)
    assert record.reason == "+20.0 points predicted, +17.0 observed"
    assert fleet.agent._state.plans is not None
    assert fleet.agent._state.plans.misses == 0


def test_what_a_plan_gained_under_another_load_says_nothing_of_the_prediction() -> None:
    fleet, _ = done(0.6, until_s=150.0)
    fleet.view = replace(fleet.view, arrival_rps=1.11 * fleet.view.arrival_rps)
    (record,) = [each for each in records(fleet.at(151.0)) if each.kind == "outcome"]
    assert record.reason == "+20.0 points predicted, -20.0 observed, under another load"
    assert fleet.agent._state.plans is not None
    assert fleet.agent._state.plans.misses == 0


def test_after_two_misses_in_a_row_nothing_is_ordered_for_an_hour_unless_an_operator_says_so() -> None:
    fleet, _ = done(0.94)
    fleet.engines.pop("b")
    fleet.now(PlanPinned(()))
    assert fleet.agent._state.plans is not None
    assert fleet.agent._state.plans.misses == 1
    fleet.agent._state.plans.miss(fleet.now_s)
    fleet.engines["b"] = engine("b", "tp4")
    fleet.at(210.0)
    effects = fleet.now(proposed(candidate(pool_plan(tp4=1), low=0.5)))
    assert about_plans(effects) == [("plan", "m: 1 tp4")]
    assert "since 2 plans gained less than predicted; a pin goes on" in decisions(effects)[-1].reason
    assert about_plans(deepcopy(fleet).now(PlanPinned((pool_plan(tp4=1),))))[1] == ("step", "tp4: 2 to 1")
    assert about_plans(fleet.at(fleet.now_s + SCALE.stopped_s)) == [("step", "tp4: 2 to 1")]


def test_a_plan_that_was_held_back_too_long_counts_anew_when_it_is_found_again() -> None:
    fleet = running()
    assert fleet.agent._state.plans is not None
    fleet.agent._state.plans.acted_s.extend([fleet.now_s - 86_400.0 + 4000.0] * SCALE.steps_a_day)
    fewer = candidate(pool_plan(tp4=1), low=0.5)
    assert about_plans(fleet.now(proposed(fewer)) + fleet.at(fleet.now_s + 4010.0)) == [("plan", "m: 1 tp4")]
    effects = fleet.now(proposed(fewer)) + fleet.at(fleet.now_s + 1.0)
    assert about_plans(effects) == [("step", "tp4: 2 to 1")]


def test_a_plan_whose_engines_do_not_come_is_given_up_for_what_runs() -> None:
    fleet = running(SCALE, a="tp4")
    assert ordered(fleet.now(proposed(candidate(pool_plan(tp4=2), low=0.5)))) == {"tp4": 2}
    assert about_plans(fleet.at(820.0)) == []  # five times 60 s to drain and 100 s to start
    effects = fleet.at(822.0)
    assert about_plans(effects) == [("rolled_back", "plan")]
    assert (ordered(effects), decisions(effects)[-1].plans) == ({"tp4": 1}, (pool_plan(tp4=1),))
    assert fleet.agent._state.plans is not None
    assert fleet.agent._state.plans.misses == 1


def test_an_operators_plan_and_one_that_has_not_begun_wait_for_engines() -> None:
    fleet = running(SCALE, a="tp4")
    fleet.now(PlanPinned((pool_plan(tp4=2),)))
    effects = fleet.at(2000.0)
    assert (about_plans(effects), ordered(effects)) == ([], {"tp4": 2})
    fleet = running(SCALE, a="tp4", b="tp2")
    fleet.engines["b"] = replace(fleet.engines["b"], up=False)
    fleet.at(21.0)
    fleet.now(proposed(candidate(pool_plan(tp4=1, tp2=2), low=0.5)))
    effects = fleet.at(2000.0)
    assert (about_plans(effects), ordered(effects)) == ([], {"tp2": 1, "tp4": 1})


def test_an_engine_that_is_down_after_the_plan_is_done_is_waited_for() -> None:
    fleet, _ = done(1.0)
    fleet.engines["b"] = replace(fleet.engines["b"], up=False)
    effects = fleet.at(2000.0)
    assert (about_plans(effects), ordered(effects)) == ([], {"tp4": 2})


# --- several copies


def restored(config: PlanConfig, decision: PlanDecision, **engines: str) -> Fleet:
    fleet = Fleet(config, **engines)
    fleet.agent = MetaAgent(fleet.config)
    fleet.now_s = 0.0
    fleet.agent.step(0.0, PlanRestored(decision))
    fleet.agent.step(0.0, EpochGranted(4))
    return fleet


def test_a_new_writer_goes_on_where_the_last_one_was() -> None:
    last = running()
    decision = decisions(last.now(proposed(MIXED_PLAN)))[-1]
    fleet = restored(SCALE, decision, a="tp4")  # the other one has left meanwhile
    effects = fleet.at(12.0)
    assert (ordered(effects), decisions(effects)[-1].epoch) == ({"tp2": 2, "tp4": 1}, 4)
    assert decisions(effects)[-1].seq > decision.seq
    fleet = restored(PLAN, decision, a="tp4")  # with less power than it
    assert decisions(fleet.at(30.0))[-1].ordered == ()


def test_a_new_writer_counts_the_steps_of_the_day_before_it() -> None:
    last = running()
    first = decisions(last.now(proposed(MIXED_PLAN)))[-1]
    assert first.acted_age_s == (0.0,)
    full = replace(first, acted_age_s=tuple(DAY_S - 40.0 + i for i in range(SCALE.steps_a_day)), ordered=())
    fleet = restored(SCALE, full, a="tp4", b="tp4")  # nothing of the plan was ordered yet
    told = decisions(fleet.at(12.0))[-1]
    assert told.reason.endswith("waits because engines were sent away 10 times within a day")
    assert len(told.acted_age_s) == SCALE.steps_a_day
    assert told.acted_age_s[0] == pytest.approx(DAY_S - 40.0 + 19.0 + 12.0, abs=2.0)
    assert ordered(fleet.at(60.0)) == {"tp2": 0, "tp4": 1}  # those of the day before are forgotten


def test_a_writer_does_not_follow_itself_or_those_before_it_once_it_has_acted() -> None:
    fleet = running()
    first = decisions(fleet.now(proposed(MIXED_PLAN)))[-1]
    old = replace(first, epoch=2, plans=(pool_plan(tp4=2),), ordered=(Group("tp4", 2),))
    fleet.now(PlanRestored(old))
    assert ordered(fleet.at(30.0)) == {"tp2": 0, "tp4": 1}
    del fleet.engines["b"]
    fleet.at(31.0)
    fleet.now(PlanRestored(first))  # its own, late
    assert ordered(fleet.at(40.0)) == {"tp2": 2, "tp4": 1}
    fleet.now(EpochLost(), PlanRestored(replace(old, epoch=5)), EpochGranted(6))
    assert ordered(fleet.at(46.0)) == {"tp4": 2}


def test_a_copy_that_stands_by_with_a_pin_follows_what_was_ordered() -> None:
    decision = decisions(running().now(proposed(MIXED_PLAN)))[-1]
    fleet = Fleet(SCALE, a="tp4", b="tp4")
    fleet.now(
        EpochLost(), PlanPinned((pool_plan(tp4=1, tp2=2),)), PlanRestored(replace(decision, plans=(pool_plan(tp4=2),)))
    )
    fleet.now(EpochGranted(4))
    told = decisions(fleet.at(12.0))[-1]
    assert (told.plans, told.selector) == ((pool_plan(tp4=1, tp2=2),), "pin")
    assert {each.type: each.count for each in told.ordered} == {"tp2": 0, "tp4": 1}


def test_a_plan_that_no_longer_fits_the_budget_is_not_resumed() -> None:
    decision = decisions(running().now(proposed(MIXED_PLAN)))[-1]
    fleet = restored(replace(SCALE, budgets=(Budget("h100", 4),)), decision, a="tp4")
    assert decisions(fleet.at(30.0)) == []


def test_a_copy_that_stands_by_says_nothing() -> None:
    fleet = running()
    fleet.now(EpochLost())
    effects = fleet.at(60.0, proposed(MIXED_PLAN), PlanPinned((pool_plan(tp2=4),)))
    assert (decisions(effects), about_plans(effects)) == ([], [])
