"""What the guards do to a pool at every V_short: they begin and end the bypass, and take a switch back."""

from hmas.contracts.control_agents import MetaEffect
from hmas.contracts.views import VShort
from hmas.laws.epochs import is_outdated
from hmas.meta.agent.pool import Decider, PoolState
from hmas.meta.agent.publication import audit, publish_due
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.state import MetaState


def on_short(state: MetaState, view: VShort) -> list[MetaEffect]:
    pool = state.pool(view.pool)
    if pool.short is not None and is_outdated(view.epoch, pool.short.epoch, pool.view_s, state.now_s):
        return []
    pool.short, pool.view_s = view, state.now_s
    if state.epoch is None or pool.pin is not None:
        return []
    effects = _guard(state, pool, view)
    return [*effects, *publish_due(state, pool)]


def change_bypass(state: MetaState, pool: PoolState, mode: Decider, reason: str) -> list[MetaEffect]:
    """Enters the bypass, or leaves it (`mode` FREE), and drops an open question to the selector. After the bypass the
    selector's last accepted choice is in force again, whatever it led to, for at least the dwell."""
    pool.enter(state.now_s, mode)
    pool.untouched = False
    pool.bypass_reason = reason
    pool.ask = None
    pool.switched_s = state.now_s
    kind = "bypass_on" if mode is Decider.BYPASSED else "bypass_off"
    return audit(state, pool, kind, pool.in_force().topology, reason, "bypass", pool.short)


def _guard(state: MetaState, pool: PoolState, view: VShort) -> list[MetaEffect]:
    now_s = state.now_s
    if pool.mode is Decider.BYPASSED:
        over = pool.bypass.over(now_s, view)
        return [] if over is None else change_bypass(state, pool, Decider.FREE, over)
    if (emergency := pool.bypass.emergency(now_s, view)) is not None:
        return change_bypass(state, pool, Decider.BYPASSED, emergency)
    if pool.mode is not Decider.WATCHED:
        return []
    if pool.rollback.over(now_s):
        pool.enter(now_s, Decider.FREE)
        return []
    worse = pool.rollback.check(now_s, view)
    if worse is None or pool.stable is None:
        return []
    pool.enter(now_s, Decider.FREE)
    failed = pool.choice.topology
    pool.banned_until_s[failed] = now_s + state.config.rollback.ban_s
    restored = Choice(pool.stable.topology, pool.stable.hints, f"rolled back from {failed}: {worse}")
    pool.choice, pool.chosen_by, pool.stable = restored, "rollback", None
    pool.switched_s = now_s
    return audit(state, pool, "rolled_back", restored.topology, worse, "rollback", view)
