"""Which topology, layout and control tuple are in force: newest epoch wins, old ones expire (DESIGN §3.2, §6)."""

from typing import Generic, TypeVar

from hmas.contracts.control import (
    MIXED,
    SAFE_TOPOLOGY,
    ControlTuple,
    EngineControl,
    Fence,
    Hints,
    Layout,
    LayoutDecision,
    TopologyDecision,
    TopologyName,
)
from hmas.worker.agent.engines.admission import NO_FENCE

V = TypeVar("V", TopologyDecision, LayoutDecision, ControlTuple)


class Latest(Generic[V]):
    """The newest value of one kind of control, until it expires.

    While a value is in force, one with an older epoch, or with an older number in the same epoch, is ignored, and the
    same one again extends its validity. After it expired any epoch is accepted, because a control bucket that was lost
    starts counting epochs anew.
    """

    __slots__ = ("_order", "_until_s", "expired", "value")

    def __init__(self) -> None:
        self.value: V | None = None
        self.expired = False  # the last value expired and none has come since
        self._order = (-1, -1)
        self._until_s = 0.0

    def offer(self, now_s: float, value: V, aged_s: float) -> bool:
        """Takes `value`, sent `aged_s` seconds ago, if it is newer than the present one and still valid. Returns
        whether it is in force now."""
        until_s = now_s + value.valid_for_s - aged_s
        order = (value.epoch, value.seq)
        if order < self._order or until_s <= now_s:
            return False
        self._until_s = max(until_s, self._until_s) if order == self._order else until_s
        self._order = order
        self.value = value
        self.expired = False
        return True

    def expire(self, now_s: float) -> bool:
        """Drops the value if its validity has ended. Returns whether this call dropped it."""
        if self.value is None or now_s < self._until_s:
            return False
        self.value = None
        self.expired = True
        self._order = (-1, -1)
        return True


class ControlState:
    """The topology decision, the layout decision and the control tuple of one worker.

    Bypass outranks the other two, and the tuple outranks the static limits. Without a decision the topology is FCFS,
    and the layout mixed.
    """

    def __init__(self, worker: str, pool: str) -> None:
        self._worker = worker
        self._pool = pool
        self._decision: Latest[TopologyDecision] = Latest()
        self._layout: Latest[LayoutDecision] = Latest()
        self._tuple: Latest[ControlTuple] = Latest()
        self._engines: dict[str, EngineControl] = {}

    def take_decision(self, now_s: float, decision: TopologyDecision, aged_s: float) -> bool:
        """Takes a decision sent `aged_s` seconds ago. Returns whether it is in force now; one that is stale, or meant
        for another pool, is not."""
        return decision.pool == self._pool and self._decision.offer(now_s, decision, aged_s)

    def take_layout(self, now_s: float, decision: LayoutDecision, aged_s: float) -> bool:
        return decision.pool == self._pool and self._layout.offer(now_s, decision, aged_s)

    def take_tuple(self, now_s: float, control: ControlTuple, aged_s: float) -> bool:
        if control.worker != self._worker or not self._tuple.offer(now_s, control, aged_s):
            return False
        self._engines = {engine.engine: engine for engine in control.engines}
        return True

    def expire(self, now_s: float) -> list[str]:
        """Drops the controls whose validity has ended and returns their names: "topology", "layout", "tuple"."""
        gone = ["topology"] if self._decision.expire(now_s) else []
        if self._layout.expire(now_s):
            gone.append("layout")
        if self._tuple.expire(now_s):
            self._engines = {}
            gone.append("tuple")
        return gone

    @property
    def expired(self) -> bool:
        """Whether a safe default is in force: the topology without a decision, or the limits without a tuple."""
        return self._decision.value is None or self._tuple.value is None

    @property
    def bypass(self) -> bool:
        decision = self._decision.value
        return decision is not None and decision.bypass

    @property
    def frozen(self) -> bool:
        """Whether the token budget must not be regulated: under bypass, without a tuple, or if the tuple says so."""
        control = self._tuple.value
        return self.bypass or control is None or control.frozen

    @property
    def topology(self) -> tuple[TopologyName, Hints, str]:
        """The topology in force, its hints, and the reason for it in words."""
        decision = self._decision.value
        if decision is None:
            reason = "the last topology decision expired" if self._decision.expired else "no topology decision yet"
            return SAFE_TOPOLOGY, Hints(), reason
        if decision.bypass:
            return SAFE_TOPOLOGY, Hints(), f"bypass: {decision.reason}"
        return decision.topology, decision.hints, decision.reason

    @property
    def layout(self) -> Layout:
        """The layout in force; mixed without a decision and under bypass."""
        decision = self._layout.value
        return MIXED if decision is None or self.bypass else decision.layout

    @property
    def fence(self) -> Fence:
        control = self._tuple.value
        return NO_FENCE if control is None else control.fence

    def engine(self, name: str) -> EngineControl | None:
        """Returns the control tuple's limits for an engine; None under bypass, or if no tuple in force names it."""
        return None if self.bypass else self._engines.get(name)
