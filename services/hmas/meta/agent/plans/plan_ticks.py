"""What the plan in force leads to at each look: classes change, at most one irreversible step is taken, and what came
of the plan is judged in the end."""

from collections.abc import Mapping

from hmas.contracts.control_agents import MetaEffect
from hmas.contracts.pool_plan import PlanCandidate, PlanStep, PoolPlan, StepKind
from hmas.contracts.rehearsal import WARM_S
from hmas.laws.layout import described_split
from hmas.laws.plan_steps import InstanceCounts, described_step, plans_of
from hmas.meta.agent.config import PlanActs
from hmas.meta.agent.plans.plan_gate import held_back, waits_for
from hmas.meta.agent.plans.plan_proposals import by_rate, left, predicted_gain
from hmas.meta.agent.plans.plan_records import recorded, told_if_due
from hmas.meta.agent.plans.plan_state import PlanInForce, PlanState
from hmas.meta.agent.pool import Decider
from hmas.meta.agent.publication import publish_due
from hmas.meta.agent.state import MetaState

PLAN = "plan"


def look(state: MetaState) -> list[MetaEffect]:
    """Works out the steps that are left, takes those that may be taken, and tells the rest."""
    plans = state.plans
    if plans is None or plans.in_force is None or state.now_s < plans.look_s:
        return []
    began_s = plans.census.began_s
    if began_s is None or state.now_s - began_s < plans.config.settle_s:
        return []
    plans.look_s = state.now_s + plans.config.look_every_s
    if plans.config.acts is PlanActs.SCALE:
        _take_over(state, plans, plans.in_force)
    effects = _given_up(state, plans, plans.in_force)
    plan = plans.in_force
    if plans.config.acts is not PlanActs.ADVISE:
        effects += _reclassed(state, plans, plan)
    steps = left(state, plans, plan.candidate, plan.reclassed)
    stepped, held = _stepped(state, plans, plan, steps)
    effects += [*stepped, *_judged(state, plans, plan)]
    if stepped:
        steps = left(state, plans, plan.candidate, plan.reclassed)
        held = waits_for(plans.counts(state.now_s))
    return [*effects, *told_if_due(state, plans, plan, steps, held)]


def _take_over(state: MetaState, plans: PlanState, plan: PlanInForce) -> None:
    """Orders what runs already: all of it at first, and later what the plan wants and somebody else has started, as
    far as the budget has cards that nobody was promised."""
    counts, wanted = plans.counts(state.now_s), plan.wanted()
    if not plans.ordered:
        plans.ordered = dict.fromkeys(wanted, 0) | {name: each.ordered for name, each in counts.items()}
    for name, each in counts.items():
        more = min(wanted.get(name, 0) - plans.ordered[name], each.leaving, plans.spare(name))
        plans.ordered[name] += max(0, more)


def _stepped(
    state: MetaState, plans: PlanState, plan: PlanInForce, steps: tuple[PlanStep, ...]
) -> tuple[list[MetaEffect], str]:
    """Takes the first irreversible step, or returns why not."""
    counts = plans.counts(state.now_s)
    lasting = [step for step in steps if not step.reversible]
    if not lasting:
        if unsettled := waits_for(counts):
            return [], unsettled
        now = {name: each.ordered for name, each in counts.items()}
        if any(now.get(name, 0) < count for name, count in plan.wanted().items()):
            return [], "waits for cards that engines of other pools hold"
        plan.done_s = state.now_s if plan.done_s is None else plan.done_s
        return [], ""
    plan.done_s = None
    if held := held_back(state, plans, plan, steps, counts):
        return [], held
    step = lasting[0]
    for group in step.leaving:
        plans.ordered[group.type] -= group.count
    if not step.leaving:
        plans.ordered[step.type] = step.count_to
    plan.begun, plans.untouched = True, False
    if step.sends_away:
        plans.acted_s.append(state.now_s)
    return recorded(state, "step", described_step(step), plan.candidate.reason, plan.by, pool=step.pool), ""


def _reclassed(state: MetaState, plans: PlanState, plan: PlanInForce) -> list[MetaEffect]:
    """Gives pools the classes of the plan once their engines are there. From then on the layout may refine them."""
    effects: list[MetaEffect] = []
    for step in left(state, plans, plan.candidate, plan.reclassed):
        pool = state.pools.get(step.pool)
        if step.kind is not StepKind.RECLASS or pool is None or pool.mode is Decider.BYPASSED:
            continue
        planned = next(each for each in plan.candidate.plans if each.pool == step.pool)
        rank = {each.type: number for number, each in enumerate(planned.groups)}
        up = [
            (rank.get(name, len(rank)), path)
            for home, path, _, name, serves in plans.census.engines(state.now_s)
            if home == step.pool and serves
        ]
        pool.layout_due_s = state.now_s + state.config.layout.hold_s
        order, keep_s = tuple(path for _, path in sorted(up)), state.config.rehearsal.window_s + WARM_S
        pool.lay_out(state.now_s, planned.split, order, keep_s, plan.candidate.reason, PLAN)
        told = described_split(planned.split)
        effects += recorded(state, "step", told, plan.candidate.reason, plan.by, pool=pool.name)
        effects += publish_due(state, pool)
        plan.reclassed.add(step.pool)
    return effects


def _given_up(state: MetaState, plans: PlanState, plan: PlanInForce) -> list[MetaEffect]:
    """Gives a plan up whose engines do not come: what runs is the plan then, and it counts as a miss. An operator's
    plan waits."""
    counts = plans.counts(state.now_s)
    if plan.done_s is not None or all(each.settled for each in counts.values()):
        plans.unsettled_s = None
        return []
    if plans.unsettled_s is None:
        plans.unsettled_s = state.now_s
    missing = {name: each for name, each in counts.items() if each.starting}
    start_s = max((plans.catalogue.named(name).start_s for name in missing), default=0.0)
    waited_s = state.now_s - plans.unsettled_s
    patience_s = plans.config.patience * (plans.config.drain_s + start_s)
    if not plan.begun or plans.pinned or not missing or waited_s < patience_s:
        return []
    plans.ordered |= {name: each.up for name, each in missing.items()}
    plans.miss(state.now_s)
    reason = f"{', '.join(missing)} did not come within {waited_s:.0f} s"
    standing = PlanCandidate(plans=_standing(state, plans, plan), reason=reason)
    done = {each.pool for each in standing.plans}
    plans.take(PlanInForce(candidate=standing, by=PLAN, accepted_s=state.now_s, judged=True, reclassed=done))
    return recorded(state, "rolled_back", PLAN, reason, plan.by)


def _standing(state: MetaState, plans: PlanState, plan: PlanInForce) -> tuple[PoolPlan, ...]:
    counts: Mapping[str, InstanceCounts] = plans.counts(state.now_s)
    return plans_of(counts, {name: pool.split for name, pool in state.pools.items()})


def _judged(state: MetaState, plans: PlanState, plan: PlanInForce) -> list[MetaEffect]:
    """Compares what a plan brought with what was predicted, once V_long tells of nothing else. Under another load than
    the one that it was made for, that says nothing of the prediction."""
    if not plan.begun or plan.judged or plan.done_s is None:
        return []
    if state.now_s - plan.done_s < plans.config.observe_s:
        return []
    plan.judged = True
    now = {name: state.pools[name].long for name in plan.observed if name in state.pools}
    differences = {name: view.goodput_rate - plan.observed[name] for name, view in now.items() if view is not None}
    predicted, observed = predicted_gain(state, plan.candidate), by_rate(state, differences)
    if predicted is None or observed is None:
        return []
    reason = f"{100 * predicted:+.1f} points predicted, {100 * observed:+.1f} observed"
    rps = {name: view.arrival_rps for name, view in now.items() if view is not None}
    if any(abs(rps[name] - plan.rps[name]) > plans.config.same_rate * plan.rps[name] for name in rps):
        reason += ", under another load"
    elif predicted - observed > plans.config.miss:
        plans.miss(state.now_s)
    else:
        plans.misses = 0
    return recorded(state, "outcome", PLAN, reason, plan.by, predicted=predicted, observed=observed)
