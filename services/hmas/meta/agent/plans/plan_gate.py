"""What keeps the controller from an irreversible step."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from hmas.contracts.pool_plan import PlanCandidate, PlanStep
from hmas.laws.layout import engine_path
from hmas.laws.plan_steps import InstanceCounts, requests_lost
from hmas.meta.agent.config import PlanActs
from hmas.meta.agent.plans.plan_state import PlanInForce, PlanState
from hmas.meta.agent.pool import Decider
from hmas.meta.agent.state import MetaState


def rates(state: MetaState, candidate: PlanCandidate) -> dict[str, float]:
    """Returns the requests per second of each planned pool, as V_long last told."""
    pools = (state.pools.get(each.pool) for each in candidate.plans)
    return {pool.name: pool.long.arrival_rps for pool in pools if pool is not None and pool.long is not None}


def weighed(
    state: MetaState,
    plans: PlanState,
    candidate: PlanCandidate,
    steps: Iterable[PlanStep],
    counts: Mapping[str, InstanceCounts],
) -> tuple[float, float]:
    """Returns how many requests a plan would have on time beyond those of what runs, by the low end of what is
    expected, as long as that lasts; and how many the cards would have served that its steps take."""
    rps = rates(state, candidate)
    horizon_s = plans.horizon_s(state.now_s, {each.pool for each in candidate.plans})
    gained = horizon_s * sum(rps.get(each.pool, 0.0) * (each.low - each.before) for each in candidate.expected)
    gpus = sum(each.held * plans.catalogue.named(name).gpus for name, each in counts.items() if each.pool in rps)
    return gained, requests_lost(steps, sum(rps.values()), gpus)


def held_back(
    state: MetaState,
    plans: PlanState,
    plan: PlanInForce,
    steps: Sequence[PlanStep],
    counts: Mapping[str, InstanceCounts],
) -> str:
    """Returns why no irreversible step may be taken now. Empty: it may."""
    config = plans.config
    if config.acts is not PlanActs.SCALE:
        return f"advice alone: HMAS_PLAN={config.acts}"
    if state.now_s < plans.stopped_until_s:
        minutes = ceil((plans.stopped_until_s - state.now_s) / 60.0)
        return f"stopped for {minutes} min, since {config.misses} plans gained less than predicted; a pin goes on"
    if unsettled := waits_for(counts):
        return unsettled
    if bypassed := [name for name, pool in state.pools.items() if pool.mode is Decider.BYPASSED]:
        return f"waits for the end of the bypass of {', '.join(bypassed)}"
    if suspected := [path for _, path, info, _, _ in plans.census.engines(state.now_s) if info.suspected]:
        return f"waits for engines that are suspected: {', '.join(suspected)}"
    if not plans.pinned and (slow := _unlike_catalogue(state, plans)):
        return slow
    if held := _too_often(state, plans, plan, steps):
        return held
    if plan.begun or plans.pinned:
        return ""
    gained, lost = weighed(state, plans, plan.candidate, steps, counts)
    old = state.now_s - plan.accepted_s > config.most_horizon_s
    return "" if gained > lost and not old else "its gain no longer outweighs its steps"


def _too_often(state: MetaState, plans: PlanState, plan: PlanInForce, steps: Sequence[PlanStep]) -> str:
    """Half of a day's steps may send engines away, so that as many can bring others: what only adds engines is never
    held back, and what has begun is never left half done."""
    most, away = plans.config.steps_a_day // 2, sum(step.sends_away for step in steps)
    if not away or plan.begun or len(plans.acted_age_s(state.now_s)) + away <= most:
        return ""
    return f"waits because engines were sent away {most} times within a day"


def waits_for(counts: Mapping[str, InstanceCounts]) -> str:
    """Returns which types have engines that start or leave. Empty: none."""
    unsettled = [name for name, each in counts.items() if not each.settled]
    return f"waits for engines that start or leave: {', '.join(unsettled)}" if unsettled else ""


def _unlike_catalogue(state: MetaState, plans: PlanState) -> str:
    """Returns which type's measured steps differ too much from the catalogue's, in the mean over its engines."""
    paces = {
        (pool.name, engine_path(pace.worker, pace.engine)): pace.base_s
        for pool in state.pools.values()
        if pool.long is not None
        for pace in pool.long.paces
        if pace.observations >= plans.config.min_observations
    }
    measured: dict[str, list[float]] = {}
    for pool_name, path, _, name, _ in plans.census.engines(state.now_s):
        if (pool_name, path) in paces:
            measured.setdefault(name, []).append(paces[pool_name, path])
    for name, each in measured.items():
        ratio = sum(each) / len(each) / plans.catalogue.named(name).step.c0_s
        if abs(ratio - 1.0) > plans.config.slowness:
            return f"waits because a step of {name} takes {ratio:.2f} times what the catalogue says"
    return ""
