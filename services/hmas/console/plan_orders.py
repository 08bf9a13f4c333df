"""What an operator orders on the page Plan: which of it would change something now, and what it asks of the
controller."""

import hashlib
from enum import StrEnum

from pydantic import BaseModel, Field

from hmas.contracts.pool_plan import BY_CONSOLE, PlanDecision, PoolPlan

BY_FILE = "pin"  # the selector of the plan of an operator's file
ADVISES = "advise"


class PlanAct(StrEnum):
    """What an operator may order."""

    APPLY = "apply"  # the plan in force becomes the operator's own, which no doubt holds back
    ROLL_BACK = "roll_back"  # to what ran before it
    LIFT = "lift"  # the controller goes by its own plans, or by a file's


class PlanOrder(BaseModel):
    """What a browser asks for. `seen`: `told_plan` of the decision that its page showed."""

    act: PlanAct
    seen: str = Field("", max_length=64)


def told_plan(plan: PlanDecision) -> str:
    """Returns what tells this plan, and what ran before it, from any other."""
    return hashlib.sha256(repr((plan.plans, plan.before)).encode()).hexdigest()[:16]


def ordered_plans(plan: PlanDecision, act: PlanAct) -> tuple[PoolPlan, ...]:
    """Returns the plans that are to be pinned; none lifts the pin."""
    return {PlanAct.APPLY: plan.plans, PlanAct.ROLL_BACK: plan.before, PlanAct.LIFT: ()}[act]


def idle_order(plan: PlanDecision, act: PlanAct) -> str:
    """Returns why an order would change nothing now. Empty: it would, or it lifts, which does no harm: there may be a
    pin that the controller has rejected."""
    if act is PlanAct.LIFT:
        return ""
    if not plan.acts:
        return "the meta controller is older than this console, and takes no orders from it"
    if plan.acts == ADVISES:
        return (
            "the controller only tells its plan (HMAS_PLAN=advise): with scale it orders engines, with routing classes"
        )
    if act is PlanAct.APPLY and plan.selector in (BY_CONSOLE, BY_FILE):
        return "an operator's plan is in force already"
    if act is PlanAct.ROLL_BACK and not plan.before:
        return "nothing else is known to have run before this plan"
    return ""
