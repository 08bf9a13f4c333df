"""What the meta agent keeps for one pool."""

from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.control import (
    SAFE_TOPOLOGY,
    Hints,
    Pin,
    TopologyDecision,
    TopologyName,
)
from hmas.contracts.views import VLong, VShort
from hmas.laws.transitions import following
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.guards import BypassGuard, RollbackGuard
from hmas.meta.agent.selectors.rules import RulesSelector
from hmas.meta.agent.selectors.selector import Choice, Selector
from hmas.meta.agent.selectors.table import SELECTORS

PIN = "pin"


class Decider(StrEnum):
    """Who decides a pool's topology."""

    FREE = "free"  # the selector decides
    WATCHED = "watched"  # the selector decides, and its last switch may be rolled back
    BYPASSED = "bypassed"  # nobody decides: the safe topology is in force
    PINNED = "pinned"  # an operator decides


TRANSITIONS: dict[Decider, frozenset[Decider]] = {
    Decider.FREE: frozenset(Decider),
    Decider.WATCHED: frozenset(Decider),
    Decider.BYPASSED: frozenset({Decider.FREE, Decider.BYPASSED, Decider.PINNED}),  # again if the writer repeats it
    Decider.PINNED: frozenset({Decider.FREE, Decider.PINNED}),  # an operator outranks every guard
}


@dataclass(frozen=True, slots=True)
class Ask:
    """An open question to a language model that serves as selector."""

    number: int
    deadline_s: float
    view: VLong


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """What is in force in a pool: a topology decision without epoch, number and validity."""

    topology: TopologyName
    hints: Hints
    bypass: bool
    reason: str
    selector: str


@dataclass(slots=True, kw_only=True)
class PoolState:
    """The state of one pool. `choice` is the selector's last accepted choice; a pin or the bypass outranks it while it
    lasts, and never overwrites it."""

    name: str
    selector: Selector | None  # None: a language model is asked instead
    rules: Selector
    bypass: BypassGuard
    rollback: RollbackGuard
    seen_s: float
    view_s: float
    choice: Choice
    chosen_by: str = "initial"
    mode: Decider = Decider.FREE  # changed only by `enter`
    stable: Choice | None = None  # the choice that a rollback restores
    pin: Pin | None = None
    short: VShort | None = None
    long: VLong | None = None
    ask: Ask | None = None
    bypass_reason: str = ""
    untouched: bool = True  # this process has decided nothing yet, so a previous writer's decision still counts
    decide_due_s: float = 0.0
    switched_s: float = float("-inf")
    sent_s: float = float("-inf")
    sent: InForce | None = None
    banned_until_s: dict[TopologyName, float] = field(default_factory=dict)

    def enter(self, now_s: float, mode: Decider) -> None:
        """Changes the mode, and starts or stops the guards accordingly. Raises IllegalTransition, and changes nothing,
        if `TRANSITIONS` does not allow it."""
        before, self.mode = self.mode, following(TRANSITIONS, self.mode, mode)
        if mode is Decider.BYPASSED:
            self.bypass.begin(now_s)
        elif not {before, mode} <= {Decider.FREE, Decider.WATCHED}:
            self.bypass.rest()
        if mode is Decider.WATCHED:
            self.rollback.arm(now_s, self.short)
        else:
            self.rollback.disarm()

    def in_force(self) -> InForce:
        """Returns what is in force: the pin, otherwise the bypass, otherwise the selector's choice."""
        if self.pin is not None and self.pin.topology is not None:
            by = f"pinned by {self.pin.by or 'an operator'}"
            return InForce(topology=self.pin.topology, hints=self.pin.hints, bypass=False, reason=by, selector=PIN)
        if self.mode is Decider.BYPASSED:
            return InForce(
                topology=SAFE_TOPOLOGY, hints=Hints(), bypass=True, reason=self.bypass_reason, selector="bypass"
            )
        c = self.choice
        return InForce(topology=c.topology, hints=c.hints, bypass=False, reason=c.reason, selector=self.chosen_by)

    def resume(self, now_s: float, decision: TopologyDecision) -> None:
        """Goes on from the last decision of a previous writer. A decision by a pin is skipped, because pins are
        restored separately."""
        if decision.selector == PIN:
            return
        if decision.bypass:
            if self.mode is not Decider.PINNED:
                self.enter(now_s, Decider.BYPASSED)
            self.ask = None
            self.bypass_reason = decision.reason
        else:
            if self.mode is Decider.BYPASSED:
                self.enter(now_s, Decider.FREE)
            self.bypass.rest()
            self.choice = Choice(decision.topology, decision.hints, decision.reason)
            self.chosen_by = decision.selector

    def banned(self, now_s: float, topology: TopologyName) -> bool:
        self.banned_until_s = {t: until for t, until in self.banned_until_s.items() if until > now_s}
        return topology in self.banned_until_s


def new_pool(config: MetaConfig, name: str, now_s: float) -> PoolState:
    factory = SELECTORS.get(config.selector)
    return PoolState(
        name=name,
        selector=factory(config) if factory is not None else None,
        rules=RulesSelector(config.rules),
        bypass=BypassGuard(config.bypass),
        rollback=RollbackGuard(config.rollback),
        seen_s=now_s,
        view_s=now_s,
        choice=Choice(config.rules.usual, config.rules.hints, "initial topology"),
    )
