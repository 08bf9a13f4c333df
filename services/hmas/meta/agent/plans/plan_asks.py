"""When the controller has plans searched for, and what becomes of those that were found."""

from hmas.contracts.control_agents import MetaEffect, PlansProposed, PlansSearched, SearchPlans
from hmas.laws.plan_steps import plans_of
from hmas.meta.agent.plans.plan_proposals import on_plans
from hmas.meta.agent.plans.plan_state import OpenSearch, PlanState
from hmas.meta.agent.pool import Decider
from hmas.meta.agent.state import MetaState

SEARCH = "search"


def ask(state: MetaState) -> list[MetaEffect]:
    """Has plans searched for from time to time: for the pools whose engines are of the catalogue, once all of these are
    up and enough requests tell what is asked of them. An operator's plan leaves nothing to search."""
    plans = state.plans
    if plans is None or not _due(state, plans):
        return []
    counts = plans.counts(state.now_s)
    if not counts or not all(each.settled for each in counts.values()):
        return []
    standing = plans_of(counts, {name: pool.split for name, pool in state.pools.items()})
    if not all(_known(state, plans, each.pool) for each in standing):
        return []
    config = plans.config
    plans.searches += 1
    plans.open_search = OpenSearch(plans.searches, state.now_s, state.now_s + 2.0 * config.search_timeout_s)
    plans.search_due_s = state.now_s + config.search_every_s
    return [
        SearchPlans(
            number=plans.searches,
            standing=standing,
            catalogue=plans.catalogue,
            budgets=config.budgets,
            window_s=config.search_window_s,
            timeout_s=config.search_timeout_s,
        )
    ]


def on_searched(state: MetaState, event: PlansSearched) -> list[MetaEffect]:
    """Proposes what was found, unless the search is no longer waited for."""
    plans = state.plans
    if plans is None or plans.open_search is None or plans.open_search.number != event.number:
        return []
    plans.search_budget.spend(plans.open_search.began_s, event.cpu_s)
    plans.open_search = None
    if plans.pinned:
        return []
    return on_plans(state, PlansProposed(event.candidates, SEARCH))


def _due(state: MetaState, plans: PlanState) -> bool:
    now_s, plan = state.now_s, plans.in_force
    if plans.open_search is not None and now_s < plans.open_search.deadline_s:
        return False
    moving = plan is not None and plan.begun and plan.done_s is None
    settled = plans.census.began_s is not None and now_s - plans.census.began_s >= plans.config.search_window_s
    free = now_s >= plans.search_due_s and plans.search_budget.free(now_s)
    return plans.config.search_every_s > 0.0 and settled and free and not plans.pinned and not moving


def _known(state: MetaState, plans: PlanState, name: str) -> bool:
    """Whether the requests of a pool tell enough to plan by."""
    pool, config = state.pools.get(name), plans.config
    if pool is None or pool.long is None or pool.mode is Decider.BYPASSED:
        return False
    return pool.long.arrival_rps * config.search_window_s >= config.search_requests
