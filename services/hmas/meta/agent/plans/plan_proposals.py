"""Which proposed plan comes into force: the best one whose gain outweighs its steps, unless an operator's plan rules
(`plan_pins.py`)."""

from dataclasses import replace

from hmas.contracts.control_agents import MetaEffect, PlansProposed
from hmas.contracts.pool_plan import PlanCandidate, PlanDecision, PlanStep, PoolPlan
from hmas.laws.epochs import MAX_SEQ
from hmas.laws.plan_steps import alike_plans, described_plans, plan_fault, plans_of, steps_towards
from hmas.meta.agent.plans.plan_gate import weighed
from hmas.meta.agent.plans.plan_records import recorded
from hmas.meta.agent.plans.plan_state import PlanInForce, PlanState
from hmas.meta.agent.state import MetaState


def on_plans(state: MetaState, event: PlansProposed) -> list[MetaEffect]:
    plans = state.plans
    if plans is None or state.epoch is None or not event.candidates:
        return []
    if plans.pinned:
        return rejected_plan(state, event.candidates[0], event.by, "an operator's plan is in force")
    return _on_proposed(state, plans, event)


def resume_plan(state: MetaState, decision: PlanDecision) -> None:
    """Follows the decision of a previous writer, unless this one has accepted a plan itself."""
    plans = state.plans
    state.seq = max(state.seq, min(decision.seq, MAX_SEQ))
    follows = state.epoch is None or (plans is not None and plans.untouched and decision.epoch < state.epoch)
    if plans is None or not follows:
        return
    if not plan_fault(decision.plans, plans.catalogue, plans.config.budgets):
        plans.resume(state.now_s, decision)


def left(state: MetaState, plans: PlanState, candidate: PlanCandidate, done: set[str]) -> tuple[PlanStep, ...]:
    """Returns the steps to a plan. The classes of the pools in `done` are as they should be."""
    splits = {name: pool.split for name, pool in state.pools.items() if name not in done}
    counts, config = plans.counts(state.now_s), plans.config
    return steps_towards(candidate.plans, plans.catalogue, config.budgets, counts, splits, config.drain_s)


def _on_proposed(state: MetaState, plans: PlanState, event: PlansProposed) -> list[MetaEffect]:
    effects: list[MetaEffect] = []
    counts = plans.counts(state.now_s)
    best: tuple[float, float, PlanCandidate] | None = None
    for candidate in event.candidates:
        if fault := fault_of_plan(state, plans, candidate):
            effects += rejected_plan(state, candidate, event.by, fault)
            continue
        steps = left(state, plans, candidate, set())
        gained, lost = weighed(state, plans, candidate, steps, counts)
        if best is None or gained - lost > best[0] - best[1]:
            best = gained, lost, candidate
    if best is None:
        return effects
    gained, lost, candidate = best
    plan = plans.in_force
    if plan is not None and plan.candidate.plans == candidate.plans:
        if not plan.begun:  # what it was to bring when it was accepted may be long ago
            plan.candidate, plan.accepted_s = candidate, state.now_s
            plan.observed, plan.rps = _seen(state, candidate)
        return effects
    if plan is not None and plan.begun and plan.done_s is None:
        return [*effects, *rejected_plan(state, candidate, event.by, "the steps of the plan before it are not over")]
    if left(state, plans, candidate, set()) and gained <= lost:
        told = f"{gained:.0f} more requests on time, {lost:.0f} lost by its steps"
        return [*effects, *rejected_plan(state, candidate, event.by, f"no clear gain: {told}")]
    return [*effects, *accepted_plan(state, plans, candidate, event.by, predicted_gain(state, candidate))]


def predicted_gain(state: MetaState, candidate: PlanCandidate) -> float | None:
    """Returns the expected difference of shares on time of all pools together; None if it is unknown."""
    return by_rate(state, {each.pool: each.share - each.before for each in candidate.expected})


def by_rate(state: MetaState, values: dict[str, float]) -> float | None:
    """Returns the mean of the pools' values, weighted by their requests per second; None if none is known."""
    longs = ((value, state.pools[name].long) for name, value in values.items() if name in state.pools)
    told = [(value, view.arrival_rps) for value, view in longs if view is not None]
    total = sum(rps for _, rps in told)
    return sum(value * rps for value, rps in told) / total if total > 0.0 else None


def fault_of_plan(state: MetaState, plans: PlanState, candidate: PlanCandidate) -> str:
    """Returns why a plan cannot be put in force. Empty: it can."""
    if fault := plan_fault(candidate.plans, plans.catalogue, plans.config.budgets):
        return fault
    planned = {each.pool for each in candidate.plans}
    missing = sorted({each.pool for each in plans.counts(state.now_s).values() if each.held} - planned)
    return f"it leaves out the pool {', '.join(missing)}" if missing else ""


def accepted_plan(
    state: MetaState, plans: PlanState, candidate: PlanCandidate, by: str, predicted: float | None
) -> list[MetaEffect]:
    """Puts a plan in force. One that is in force already goes on where it is, and its pools get its classes again."""
    plan, now_s = plans.in_force, state.now_s
    if plan is not None and plan.candidate.plans == candidate.plans:
        plan = replace(plan, candidate=candidate, by=by, accepted_s=now_s, reclassed=set())
    else:
        observed, rps = _seen(state, candidate)
        before = _ran_before(state, plans, candidate)
        plan = PlanInForce(candidate=candidate, by=by, accepted_s=now_s, observed=observed, rps=rps, before=before)
    plans.take(plan)
    plans.look_s = state.now_s
    if state.epoch is None:
        return []
    plans.untouched = False
    told = described_plans(candidate.plans)
    return recorded(state, "plan", told, candidate.reason, by, predicted=predicted)


def _seen(state: MetaState, candidate: PlanCandidate) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the share on time of each planned pool now, and its requests per second."""
    longs = ((each.pool, state.pools[each.pool].long) for each in candidate.plans if each.pool in state.pools)
    views = {name: view for name, view in longs if view is not None}
    shares = {name: view.goodput_rate for name, view in views.items()}
    return shares, {name: view.arrival_rps for name, view in views.items()}


def _ran_before(state: MetaState, plans: PlanState, candidate: PlanCandidate) -> tuple[PoolPlan, ...]:
    """Returns what was ordered until a plan is accepted, or what ran before that where it is the same; none if it is
    unknown."""
    splits = {name: pool.split for name, pool in state.pools.items()}
    ran = tuple(each for each in plans_of(plans.counts(state.now_s), splits) if each.groups)
    if alike_plans(ran, candidate.plans):
        ran = plans.in_force.before if plans.in_force is not None else ()
    return () if alike_plans(ran, candidate.plans) else ran


def rejected_plan(state: MetaState, candidate: PlanCandidate, by: str, reason: str) -> list[MetaEffect]:
    return recorded(state, "rejected", described_plans(candidate.plans), reason, by)
