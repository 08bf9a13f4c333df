"""The circuit breaker of an engine: decides when it counts as down, and when it may be tried again."""

from dataclasses import dataclass
from enum import StrEnum

from hmas.laws.transitions import following


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"  # in use again, on trial: one failed request opens it


TRANSITIONS: dict[BreakerState, frozenset[BreakerState]] = {
    BreakerState.CLOSED: frozenset({BreakerState.OPEN}),
    BreakerState.OPEN: frozenset({BreakerState.HALF_OPEN}),
    BreakerState.HALF_OPEN: frozenset({BreakerState.CLOSED, BreakerState.OPEN}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When a breaker opens and for how long.

    `failures`: consecutive failed requests that open it; `probes`: consecutive unanswered probes that do. The cooldown,
    after which an open breaker is probed, doubles each time up to `max_cooldown_s`.
    """

    failures: int = 5
    probes: int = 3
    cooldown_s: float = 0.25
    max_cooldown_s: float = 2.0


class Breaker:
    """Tracks whether one engine is usable. It starts open, so that an engine is used only after it answered a probe."""

    def __init__(self, config: BreakerConfig) -> None:
        self._config = config
        self._failures = 0
        self._unanswered = 0
        self._cooldown_s = config.cooldown_s
        self._retry_s = float("-inf")
        self.state = BreakerState.OPEN

    @property
    def usable(self) -> bool:
        return self.state is not BreakerState.OPEN

    def probe_due(self, now_s: float) -> bool:
        """Returns whether the breaker is open and its cooldown is over, so that the engine should be probed."""
        return self.state is BreakerState.OPEN and now_s >= self._retry_s

    def probed(self) -> None:
        """Records that the engine answered a probe; an open breaker becomes half open."""
        self._unanswered = 0
        if self.state is BreakerState.OPEN:
            self._enter(BreakerState.HALF_OPEN)

    def probe_failed(self, now_s: float, *, certain: bool) -> bool:
        """Records that a probe failed, and returns whether this opened the breaker.

        `certain`: nothing listens, or the engine itself says that it cannot serve, so that one probe is enough.
        """
        self._unanswered += 1
        if self.state is BreakerState.OPEN:
            self._cool_down(now_s)
            return False
        return (certain or self._unanswered >= self._config.probes) and self._open(now_s)

    def succeeded(self) -> None:
        """Records that the engine served a request; a half-open breaker closes."""
        self._failures = 0
        if self.state is BreakerState.HALF_OPEN:
            self._enter(BreakerState.CLOSED)
            self._cooldown_s = self._config.cooldown_s

    def failed(self, now_s: float) -> bool:
        """Records that a request failed by the engine's fault, and returns whether this opened the breaker."""
        self._failures += 1
        if self.state is BreakerState.OPEN:
            return False  # the request was sent before the breaker opened
        trial_lost = self.state is BreakerState.HALF_OPEN
        return (trial_lost or self._failures >= self._config.failures) and self._open(now_s)

    def trip(self, now_s: float) -> None:
        """Opens the breaker because the engine could not be watched any more."""
        if self.usable:
            self._open(now_s)

    def _open(self, now_s: float) -> bool:
        self._enter(BreakerState.OPEN)
        self._cool_down(now_s)
        return True

    def _enter(self, state: BreakerState) -> None:
        """Changes the state; nothing else does. Raises IllegalTransition if `TRANSITIONS` does not allow it."""
        self.state = following(TRANSITIONS, self.state, state)

    def _cool_down(self, now_s: float) -> None:
        self._retry_s = now_s + self._cooldown_s
        self._cooldown_s = min(self._config.max_cooldown_s, 2 * self._cooldown_s)
