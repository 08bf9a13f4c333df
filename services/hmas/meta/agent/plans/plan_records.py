"""What is told of plans: the decision in force, and a record of each change."""

from hmas.contracts.control import AuditRecord
from hmas.contracts.control_agents import MetaEffect, PublishAudit, PublishPlan
from hmas.contracts.pool_plan import Group, PlanDecision, PlanStep
from hmas.meta.agent.plans.plan_state import PlanInForce, PlanState, ToldPlan
from hmas.meta.agent.state import MetaState


def told_if_due(
    state: MetaState, plans: PlanState, plan: PlanInForce, steps: tuple[PlanStep, ...], held: str
) -> list[MetaEffect]:
    """Publishes the plan in force, with the steps that are left and what holds them back, if anything of it has
    changed or its repetition is due."""
    reason = "; ".join(filter(None, [plan.candidate.reason, held]))
    ordered = tuple(Group(name, count) for name, count in sorted(plans.ordered.items()))
    told = ToldPlan(plan.candidate, steps, ordered, reason, plan.by)
    if told == plans.sent and state.now_s - plans.sent_s < state.config.valid_for_s / 3.0:
        return []
    state.seq += 1
    plans.sent, plans.sent_s = told, state.now_s
    decision = PlanDecision(
        plans=plan.candidate.plans,
        expected=plan.candidate.expected,
        bound=plan.candidate.bound,
        steps=steps,
        ordered=ordered,
        epoch=state.epoch or 0,
        seq=state.seq,
        valid_for_s=state.config.valid_for_s,
        reason=reason,
        selector=plan.by,
        acted_age_s=plans.acted_age_s(state.now_s),
        acts=plans.config.acts.value,
        before=plan.before,
        types=plans.types(state.now_s),
    )
    return [PublishPlan(decision)]


def recorded(
    state: MetaState,
    kind: str,
    decision: str,
    reason: str,
    by: str,
    *,
    pool: str = "",
    predicted: float | None = None,
    observed: float | None = None,
) -> list[MetaEffect]:
    """Records a decision about the plan of all pools, or about one pool. Gains are differences of shares on time."""
    record = AuditRecord(
        source="meta",
        pool=pool,
        kind=kind,
        decision=decision,
        reason=reason,
        selector=by,
        view_json="{}",
        epoch=state.epoch or 0,
        seq=state.seq,
        predicted_gain=predicted,
        observed_gain=observed,
    )
    return [PublishAudit(record)]
