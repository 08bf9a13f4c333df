"""How a selector's choice comes into force: unless its topology is banned or the dwell is not over."""

from hmas.contracts.control_agents import MetaEffect
from hmas.contracts.views import VLong
from hmas.meta.agent.interventions import change_bypass
from hmas.meta.agent.pool import Decider, PoolState
from hmas.meta.agent.publication import audit, publish_due
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.state import MetaState


def switch(
    state: MetaState, pool: PoolState, choice: Choice, selector: str, view: VLong, *, predicted: float | None = None
) -> list[MetaEffect]:
    """Applies a choice, or records why not. `predicted`: the gain that a rehearsal promised of it."""
    now_s, new = state.now_s, choice.topology != pool.choice.topology
    if choice.bypass:
        entered = change_bypass(state, pool, Decider.BYPASSED, f"{selector}: {choice.reason}")
        return [*entered, *publish_due(state, pool)]
    if new and pool.banned(now_s, choice.topology):
        reason = f"rolled back lately: {choice.reason}"
        return audit(state, pool, "rejected", choice.topology, reason, selector, view)
    if new and now_s - pool.switched_s < state.config.min_dwell_s:
        reason = f"minimum dwell: {choice.reason}"
        return audit(state, pool, "rejected", choice.topology, reason, selector, view)
    pool.untouched = False
    if new:
        pool.stable, pool.switched_s = pool.choice, now_s
        pool.enter(now_s, Decider.WATCHED)
    pool.choice, pool.chosen_by = choice, selector
    audited = audit(state, pool, "decided", choice.topology, choice.reason, selector, view, predicted=predicted)
    return [*audited, *publish_due(state, pool)]
