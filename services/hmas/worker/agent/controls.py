"""Which controls are in force: ordering by epoch, expiry, and the safe default (DESIGN §3.2, §6)."""

from typing import Generic, TypeVar

from hmas.contracts.control import (
    SAFE_TOPOLOGY,
    ControlTuple,
    EngineControl,
    Fence,
    Hints,
    TopologyDecision,
    TopologyName,
)
from hmas.worker.agent.admission import NO_FENCE

V = TypeVar("V", TopologyDecision, ControlTuple)


class Latest(Generic[V]):
    """The newest value of one kind of control, until it runs out. Until then an older epoch, or an older number in the
    same epoch, is ignored; the same one again renews. Once it ran out nobody else writes, and any epoch is taken: a
    bucket that was lost starts counting anew."""

    __slots__ = ("_order", "_until_s", "expired", "value")

    def __init__(self) -> None:
        self.value: V | None = None
        self.expired = False  # it had a value and lost it
        self._order = (-1, -1)
        self._until_s = 0.0

    def offer(self, now_s: float, value: V, aged_s: float) -> bool:
        """Whether `value` is in force now."""
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
        """Whether it ran out just now."""
        if self.value is None or now_s < self._until_s:
            return False
        self.value = None
        self.expired = True
        self._order = (-1, -1)
        return True


class ControlState:
    """Topology decision and control tuple of one worker. Precedence: bypass > tuple > static limits; without a
    decision the topology is FCFS."""

    def __init__(self, worker: str, pool: str) -> None:
        self._worker = worker
        self._pool = pool
        self._decision: Latest[TopologyDecision] = Latest()
        self._tuple: Latest[ControlTuple] = Latest()
        self._engines: dict[str, EngineControl] = {}

    def take_decision(self, now_s: float, decision: TopologyDecision, aged_s: float) -> bool:
        """Whether it is in force; one for another pool never is."""
        return decision.pool == self._pool and self._decision.offer(now_s, decision, aged_s)

    def take_tuple(self, now_s: float, control: ControlTuple, aged_s: float) -> bool:
        if control.worker != self._worker or not self._tuple.offer(now_s, control, aged_s):
            return False
        self._engines = {engine.engine: engine for engine in control.engines}
        return True

    def expire(self, now_s: float) -> list[str]:
        """Names of the controls that ran out just now."""
        gone = ["topology"] if self._decision.expire(now_s) else []
        if self._tuple.expire(now_s):
            self._engines = {}
            gone.append("tuple")
        return gone

    @property
    def expired(self) -> bool:
        return self._decision.expired or self._tuple.expired

    @property
    def bypass(self) -> bool:
        decision = self._decision.value
        return decision is not None and decision.bypass

    @property
    def frozen(self) -> bool:
        """The inner loop stands still."""
        control = self._tuple.value
        return self.bypass or control is None or control.frozen

    @property
    def topology(self) -> tuple[TopologyName, Hints, str]:
        """Topology, hints and reason."""
        decision = self._decision.value
        if decision is None:
            return SAFE_TOPOLOGY, Hints(), "the last decision ran out" if self._decision.expired else "no decision yet"
        if decision.bypass:
            return SAFE_TOPOLOGY, Hints(), f"bypass: {decision.reason}"
        return decision.topology, decision.hints, decision.reason

    @property
    def fence(self) -> Fence:
        control = self._tuple.value
        return NO_FENCE if control is None else control.fence

    def engine(self, name: str) -> EngineControl | None:
        """The tuple's entry for an engine; None under bypass or without one."""
        return None if self.bypass else self._engines.get(name)
