"""The meta agent, which adapts the topology of every pool slowly and under guards (H-MAS Algorithm 1, lines 8-16)."""

from collections.abc import Mapping
from typing import assert_never

from hmas.contracts.control import LayoutDecision, TopologyDecision
from hmas.contracts.control_agents import (
    EpochGranted,
    EpochLost,
    LayoutRestored,
    LongViewReceived,
    MetaEffect,
    MetaEvent,
    PinChanged,
    PlanPinChanged,
    PlanPinned,
    PlanRestored,
    PlansProposed,
    PlansSearched,
    RehearsalAnswered,
    SelectorAnswered,
    ShortViewReceived,
    TimerTicked,
    TopologyRestored,
)
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.views import VLong
from hmas.laws.epochs import is_outdated
from hmas.meta.agent import foretelling, interventions, layouts, pins, proposals, publication, trials
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.plans import plan_asks, plan_pins, plan_proposals, plan_ticks
from hmas.meta.agent.selectors.table import SELECTORS, MakeSelector
from hmas.meta.agent.state import MetaState


class MetaAgent:
    """Decides the topology of every pool. It decides and publishes only while it holds an epoch; until then it only
    follows. It needs a `TimerTicked` at least four times a second.

    `selectors` makes those that answer at once, by name. Raises ValueError if the configured selector is unknown.
    """

    def __init__(self, config: MetaConfig, selectors: Mapping[str, MakeSelector] = SELECTORS) -> None:
        self._state = MetaState(config, selectors)

    def step(self, now_s: float, event: MetaEvent) -> list[MetaEffect]:
        state = self._state
        state.now_s = now_s
        match event:
            case ShortViewReceived(view):
                return interventions.on_short(state, view)
            case LongViewReceived(view):
                return self._long(view)
            case SelectorAnswered():
                return proposals.on_answered(state, event)
            case RehearsalAnswered(number=number):
                if state.foretelling is not None and state.foretelling.number == number:
                    return foretelling.on_foretold(state, event)
                return trials.on_rehearsed(state, event)
            case PinChanged(pin):
                return pins.on_pin(state, pin)
            case PlansSearched():
                return plan_asks.on_searched(state, event)
            case PlansProposed():
                return plan_proposals.on_plans(state, event)
            case PlanPinned() | PlanPinChanged():
                return plan_pins.on_plan_pin(state, event)
            case HeartbeatReceived(heartbeat):
                state.pool(heartbeat.pool).meet(now_s, heartbeat)
                if state.plans is not None:
                    state.plans.census.hear(now_s, heartbeat)
            case TopologyRestored(decision):
                state.resume(decision)
            case LayoutRestored(layout):
                state.resume_layout(layout)
            case PlanRestored(plan):
                plan_proposals.resume_plan(state, plan)
            case EpochGranted(epoch):
                state.begin(epoch)
            case EpochLost():
                state.end()
            case TimerTicked():
                return self._tick()
            case _:
                assert_never(event)
        return []

    def decisions(self) -> list[TopologyDecision]:
        """Returns the topology decision in force in each pool."""
        return [publication.decision_of(self._state, pool) for pool in self._state.pools.values()]

    def layouts(self) -> list[LayoutDecision]:
        """Returns the layout decision of each pool."""
        return [publication.layout_of(self._state, pool) for pool in self._state.pools.values()]

    def _long(self, view: VLong) -> list[MetaEffect]:
        state = self._state
        pool = state.pool(view.pool)
        if pool.long is not None and is_outdated(view.epoch, pool.long.epoch, pool.long_s, state.now_s):
            return []
        pool.long, pool.long_s = view, state.now_s
        if state.plans is not None:
            state.plans.see_mix(state.now_s, view)
        laid_out = layouts.lay_out(state, pool, view)
        return [*laid_out, *trials.compare(state, pool, view), *proposals.decide(state, pool, view)]

    def _tick(self) -> list[MetaEffect]:
        state = self._state
        state.forget()
        if state.epoch is None:
            return []
        effects = trials.overdue(state)
        for pool in state.pools.values():
            effects += proposals.overdue(state, pool)
            effects += publication.publish_due(state, pool)
        return [*effects, *plan_ticks.look(state), *plan_asks.ask(state), *foretelling.foretell(state)]
