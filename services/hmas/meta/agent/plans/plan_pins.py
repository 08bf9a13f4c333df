"""An operator's plan: one that was pinned in the console, otherwise that of a file. It outranks those that are
proposed, and needs no gain."""

from dataclasses import replace

from hmas.contracts.control_agents import MetaEffect, PlanPinChanged, PlanPinned
from hmas.contracts.pool_plan import BY_CONSOLE, PlanCandidate, PoolPlan
from hmas.meta.agent.plans.plan_proposals import accepted_plan, fault_of_plan, rejected_plan
from hmas.meta.agent.plans.plan_records import recorded
from hmas.meta.agent.plans.plan_state import PlanState
from hmas.meta.agent.pool import PIN
from hmas.meta.agent.state import MetaState

KEPT = "plan"  # who made the plan that an operator's leaves behind
PINNED = {BY_CONSOLE: "pinned by the console", PIN: "pinned by an operator"}
LIFTED = {BY_CONSOLE: "lifted by the console", PIN: "the file is gone"}


def on_plan_pin(state: MetaState, event: PlanPinned | PlanPinChanged) -> list[MetaEffect]:
    """Sets or lifts an operator's plan. This may come before the epoch does, and again after each reconnection."""
    plans = state.plans
    if plans is None:
        return []
    if isinstance(event, PlanPinned):
        by, wanted = PIN, event.plans
    else:
        by, wanted = BY_CONSOLE, event.pin.plans
    if not wanted:
        return _lifted(state, plans, by)
    return [] if plans.pins.get(by) == wanted else _pinned(state, plans, by, wanted)


def _pinned(state: MetaState, plans: PlanState, by: str, wanted: tuple[PoolPlan, ...]) -> list[MetaEffect]:
    candidate = PlanCandidate(plans=wanted, reason=PINNED[by])
    if fault := fault_of_plan(state, plans, candidate):
        return rejected_plan(state, candidate, by, fault) if state.epoch is not None else []
    plans.pins[by] = wanted
    if by == PIN and BY_CONSOLE in plans.pins:
        reason = "the plan that the console pinned outranks it until that is lifted"
        return rejected_plan(state, candidate, by, reason) if state.epoch is not None else []
    plans.misses, plans.stopped_until_s = 0, state.now_s  # it begins anew after plans that missed
    return _put_in_force(state, plans, by, wanted)


def _put_in_force(state: MetaState, plans: PlanState, by: str, wanted: tuple[PoolPlan, ...]) -> list[MetaEffect]:
    """A plan that is in force already keeps what is known of it: what is expected, and what ran before it."""
    plan = plans.in_force
    candidate = PlanCandidate(plans=wanted, reason=PINNED[by])
    if plan is not None and plan.candidate.plans == wanted:
        candidate = replace(plan.candidate, reason=PINNED[by])
    return accepted_plan(state, plans, candidate, by, None)


def _lifted(state: MetaState, plans: PlanState, by: str) -> list[MetaEffect]:
    """What was in force stays so until a better plan is found, unless another pin was outranked so far."""
    plan = plans.in_force
    ruled = plan is not None and plan.by == by
    if plans.pins.pop(by, None) is None and not ruled:
        return []
    effects = recorded(state, "unpinned", "plan", LIFTED[by], by) if state.epoch is not None else []
    if plan is None or not ruled:
        return effects
    for other, wanted in plans.pins.items():
        return effects + _put_in_force(state, plans, other, wanted)
    plan.by, plan.candidate = KEPT, replace(plan.candidate, reason="kept after an operator's plan was lifted")
    return effects
