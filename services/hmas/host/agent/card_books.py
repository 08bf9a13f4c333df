"""What the arbiter knows of an engine and of a card."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from hmas.contracts.residency import EngineDemand, EngineResidency, Readiness, ResidentEngine
from hmas.host.agent.config import HostConfig
from hmas.host.agent.machine import MOVING, Signal, after, holds_gb
from hmas.laws.model_places import Resident, Switch

BLEND = 0.3  # of a measured time of a move in what the next one is taken to last


class ResidentBooks:
    """One engine: its state, since when, and what its moves take. Until it has been `seen`, nobody knows its state."""

    def __init__(self, engine: ResidentEngine) -> None:
        self.engine = engine
        self.readiness = Readiness.FAILED
        self.seen = False
        self.since_s = 0.0
        self.used_s = -inf
        self.fresh = False
        self.stopped = False
        self.foreign_until_s = -inf
        self._costs = {
            Readiness.STARTING: engine.start_s,
            Readiness.WAKING: engine.wake_s,
            Readiness.FALLING: engine.sleep_s,
        }

    @property
    def name(self) -> str:
        return self.engine.engine

    @property
    def held_gb(self) -> float:
        return holds_gb(self.readiness, self.engine.awake_gb, self.engine.asleep_gb)

    def takes_s(self, move: Readiness) -> float:
        return self._costs[move]

    def go(self, now_s: float, signal: Signal) -> None:
        """Follows the table. Raises ValueError for what it does not have."""
        self.enter(now_s, after(self.readiness, signal))

    def enter(self, now_s: float, readiness: Readiness) -> None:
        self.readiness, self.since_s, self.stopped = readiness, now_s, False

    def took(self, seconds: float) -> None:
        """Learns from a move of the present kind that ended well."""
        if self.readiness in MOVING:
            self._costs[self.readiness] += BLEND * (seconds - self._costs[self.readiness])

    def is_overdue(self, now_s: float, config: HostConfig) -> bool:
        if self.readiness not in MOVING:
            return False
        return now_s - self.since_s > max(config.patience * self._costs[self.readiness], config.least_patience_s)

    def ready_s(self, now_s: float) -> float | None:
        """Returns the seconds until it serves, None if nobody has asked for that."""
        if self.readiness is Readiness.AWAKE:
            return 0.0
        if self.readiness in (Readiness.WAKING, Readiness.STARTING):
            return max(0.0, self.since_s + self._costs[self.readiness] - now_s)
        return None

    def told(self, now_s: float) -> EngineResidency:
        return EngineResidency(
            engine=self.name, card=self.engine.card, readiness=self.readiness, ready_s=self.ready_s(now_s)
        )

    def resident(self, now_s: float, demand: EngineDemand) -> Resident:
        """Returns the engine as the law sees it."""
        cold = self.readiness is Readiness.COLD
        movable = self.readiness in (Readiness.AWAKE, Readiness.ASLEEP, Readiness.COLD)
        return Resident(
            engine=self.name, awake=self.readiness not in (Readiness.COLD, Readiness.ASLEEP), held_gb=self.held_gb,
            awake_gb=self.engine.awake_gb, asleep_gb=self.engine.asleep_gb, sleep_s=self._costs[Readiness.FALLING],
            ready_s=self._costs[Readiness.STARTING if cold else Readiness.WAKING], interrupts=self.engine.interrupts,
            movable=movable and now_s >= self.foreign_until_s, fresh=self.fresh, idle_s=now_s - self.used_s,
            demand=demand,
        )  # fmt: skip


@dataclass(slots=True)
class CardBooks:
    """One card: the epoch of its lease (None: another host's, or nobody's), the switch under way, and when moves began
    and ended of late."""

    card: str
    total_gb: float
    engines: list[ResidentBooks]
    epoch: int | None = None
    aim: Switch | None = None
    moves: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def known(self) -> bool:
        return all(each.seen for each in self.engines)

    @property
    def used_gb(self) -> float:
        return sum(each.held_gb for each in self.engines)

    @property
    def moving(self) -> bool:
        return any(each.readiness in MOVING for each in self.engines)

    def moving_share(self, now_s: float, window_s: float) -> float:
        """Returns which share of the last `window_s` seconds was spent in moves."""
        while self.moves and self.moves[0][1] < now_s - window_s:
            self.moves.popleft()
        return sum(end - max(begin, now_s - window_s) for begin, end in self.moves) / window_s
