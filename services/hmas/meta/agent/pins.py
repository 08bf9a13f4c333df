"""An operator's pin, which outranks the selector and every guard."""

from hmas.contracts.control import Pin
from hmas.contracts.control_agents import MetaEffect
from hmas.meta.agent.layouts import rank_pinned
from hmas.meta.agent.pool import PIN, Decider
from hmas.meta.agent.publication import audit, publish_due
from hmas.meta.agent.state import MetaState


def on_pin(state: MetaState, pin: Pin) -> list[MetaEffect]:
    """Sets or lifts a pin. A pin ends the bypass and drops an open question; lifting it starts the guards anew."""
    pool = state.pool(pin.pool)
    before, pool.pin = pool.pin, pin if pin.topology is not None else None
    if before == pool.pin:
        return []
    pool.enter(state.now_s, Decider.PINNED if pool.pin is not None else Decider.FREE)
    if pool.pin is not None and pool.pin.split is not None:
        rank_pinned(state.config.layout, pool)
    pool.ask, pool.untouched, pool.switched_s = None, False, state.now_s
    if state.epoch is None:
        return []
    kind = "pinned" if pool.pin is not None else "unpinned"
    topology = pool.in_force().topology
    audited = audit(state, pool, kind, topology, f"by {pin.by or 'an operator'}", PIN, pool.long)
    return [*audited, *publish_due(state, pool)]
