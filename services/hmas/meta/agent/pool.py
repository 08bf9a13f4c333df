"""What the meta agent keeps for one pool."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import (
    MIXED,
    SAFE_TOPOLOGY,
    Hints,
    Layout,
    LayoutDecision,
    Pin,
    Split,
    TopologyDecision,
    TopologyName,
)
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.views import VLong, VShort
from hmas.laws.layout import assigned, engine_path, in_class_order, split_of
from hmas.laws.transitions import following
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.guards import BypassGuard, RollbackGuard
from hmas.meta.agent.rehearsing import PredictedGain
from hmas.meta.agent.selectors.selector import Choice, Selector
from hmas.meta.agent.selectors.table import RULES, SELECTORS, MakeSelector

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


@dataclass(frozen=True, slots=True)
class LayoutInForce:
    """What is in force in a pool: a layout decision without epoch, number and validity."""

    layout: Layout
    reason: str
    selector: str


@dataclass(slots=True, kw_only=True)
class PoolState:
    """The state of one pool. `choice` is the selector's last accepted choice; a pin or the bypass outranks it while it
    lasts, and never overwrites it. `split` is the layout chosen for the pool, whose classes
    get the engines in that `order`, and `engines` are those that are up, by
    worker, with the instant when it said so."""

    name: str
    selector: Selector  # the rules where a language model is asked, because they decide where it does not answer
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
    long_s: float = float("-inf")
    ask: Ask | None = None
    prediction: PredictedGain | None = None  # of the last switch, until it was compared with what came
    beats: dict[str, WorkerHeartbeat] = field(default_factory=dict)  # of the workers in `engines`
    bypass_reason: str = ""
    untouched: bool = True  # this process has decided nothing yet, so a previous writer's decision still counts
    decide_due_s: float = 0.0
    layout_due_s: float = 0.0
    foretell_due_s: float = 0.0
    foretold: bool = False  # what scheduling would bring was told, and not yet that it is in force
    switched_s: float = float("-inf")
    sent_s: float = float("-inf")
    sent: tuple[InForce, LayoutInForce] | None = None
    laid_out: bool = False  # this process has chosen a layout, so a previous writer's counts no longer
    split: Split = field(default_factory=Split)
    split_reason: str = "initial layout"
    split_by: str = "initial"
    order: tuple[str, ...] = ()
    layouts: tuple[tuple[float, Split], ...] = ()  # chosen before `split`, with the instants at which they ended
    engines: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)
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
            return InForce(
                topology=self.pin.topology,
                hints=self.pin.hints,
                bypass=False,
                reason=by,
                selector=PIN,
            )
        if self.mode is Decider.BYPASSED:
            return InForce(
                topology=SAFE_TOPOLOGY, hints=Hints(), bypass=True, reason=self.bypass_reason, selector="bypass"
            )
        c = self.choice
        return InForce(
            topology=c.topology,
            hints=c.hints,
            bypass=False,
            reason=c.reason,
            selector=self.chosen_by,
        )

    def layout_in_force(self) -> LayoutInForce:
        """Returns the layout in force: the pin's, otherwise the one that was chosen. A bypass suspends it."""
        if self.pin is not None and self.pin.split is not None:
            return LayoutInForce(self.layout(self.pin.split), f"pinned by {self.pin.by or 'an operator'}", PIN)
        return LayoutInForce(self.layout(self.split), self.split_reason, self.split_by)

    def lay_out(
        self, now_s: float, split: Split, order: tuple[str, ...], keep_s: float, reason: str, selector: str
    ) -> None:
        """Takes a chosen layout. Those before it are remembered for `keep_s`."""
        ended = (*self.layouts, (now_s, self.split))
        self.layouts = tuple(each for each in ended if each[0] >= now_s - keep_s)
        self.split, self.order, self.split_reason, self.split_by = split, order, reason, selector
        self.laid_out = True

    def layout(self, split: Split) -> Layout:
        """Returns the layout of that shape over the engines that are known."""
        if not split.cuts_s:
            return MIXED
        return assigned(split, self.places())

    def places(self) -> list[str]:
        """Returns the places of the engines that are up, in the order in which classes get them."""
        up = (each for _, places in self.engines.values() for each in places)
        return in_class_order(up, self.order, self.kinds)

    @property
    def observes(self) -> bool:
        """Whether nothing is in force, because all workers of the pool only observe."""
        return bool(self.beats) and all(beat.observes for beat in self.beats.values())

    @property
    def kinds(self) -> dict[str, EngineKind]:
        """The kind of each engine that its worker tells of, by its place."""
        return {
            engine_path(worker, each.engine): each.engine_kind
            for worker, beat in self.beats.items()
            for each in beat.engines
        }

    def meet(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        """Notes which engines of a worker are up. One that drains, or is silent for too long, has none."""
        up = (
            ()
            if heartbeat.draining
            else tuple(engine_path(heartbeat.worker, e.engine) for e in heartbeat.engines if e.up)
        )
        self.engines[heartbeat.worker] = now_s, up
        horizon_s = now_s - WORKER_LOST_AFTER_S
        self.engines = {worker: told for worker, told in self.engines.items() if told[0] >= horizon_s and told[1]}
        self.beats[heartbeat.worker] = heartbeat
        self.beats = {worker: beat for worker, beat in self.beats.items() if worker in self.engines}

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

    def resume_layout(self, decision: LayoutDecision) -> None:
        """Goes on from the last layout of a previous writer; of a pin's only the order of the engines is taken."""
        self.order = tuple(each.place for each in decision.layout.engines)
        if decision.selector == PIN:
            return
        self.split = split_of(decision.layout)
        self.split_reason, self.split_by = decision.reason, decision.selector

    def banned(self, now_s: float, topology: TopologyName) -> bool:
        self.banned_until_s = {t: until for t, until in self.banned_until_s.items() if until > now_s}
        return topology in self.banned_until_s


def new_pool(
    config: MetaConfig, name: str, now_s: float, selectors: Mapping[str, MakeSelector] = SELECTORS
) -> PoolState:
    return PoolState(
        name=name,
        selector=selectors.get(config.selector, selectors[RULES])(config),
        bypass=BypassGuard(config.bypass),
        rollback=RollbackGuard(config.rollback),
        seen_s=now_s,
        view_s=now_s,
        choice=Choice(config.rules.usual, config.rules.hints, "initial topology"),
    )
