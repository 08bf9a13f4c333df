"""Stability guards on V_short: emergency bypass and rollback (H-MAS App. C.2, Eq. 12)."""

from hmas.contracts.views import VShort
from hmas.meta.agent.config import BypassConfig, RollbackConfig


def settled_count(view: VShort) -> float:
    return view.settled_rps * view.window_s


class BypassGuard:
    """xi with hysteresis: a condition must last to set it, and its absence must last to clear it. Violations are those
    of requests that were not relegated: while a backlog of relegated ones is served, all that settle may be late."""

    def __init__(self, config: BypassConfig) -> None:
        self._config = config
        self._since_s: float | None = None  # of the condition that would change the state
        self._entered_s = 0.0

    def begin(self, now_s: float) -> None:
        """xi is set."""
        self._since_s, self._entered_s = None, now_s

    def rest(self) -> None:
        """xi is not set, and no condition for it has been seen."""
        self._since_s = None

    def emergency(self, now_s: float, view: VShort) -> str | None:
        """Why to set xi, once the reason has lasted."""
        emergency = self._emergency(view)
        if emergency is None:
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._config.enter_after_s:
            return None
        return emergency

    def over(self, now_s: float, view: VShort) -> str | None:
        """Why to clear xi: its reasons have been gone for long enough, or it was held for the longest time."""
        if now_s - self._entered_s >= self._config.hold_max_s:
            return f"held {self._config.hold_max_s:.0f} s: normal adaptation is tried again"
        if view.kept_violation_rate > self._config.clear_violation or self._stalled(view):
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._config.clear_after_s:
            return None
        return f"violation rate {view.kept_violation_rate:.2f}: guard conditions cleared"

    def _emergency(self, view: VShort) -> str | None:
        if self._stalled(view):
            return f"{view.queued} queued and nothing served"
        collapsed = view.kept_violation_rate >= self._config.collapse_violation
        if collapsed and view.kept_rps * view.window_s >= self._config.min_settled:
            return f"violation rate {view.kept_violation_rate:.2f}"
        return None

    def _stalled(self, view: VShort) -> bool:
        choked = view.queued > 0 and view.served_tokens_per_s < self._config.stall_tokens_per_s
        return choked and any(engine.up for engine in view.engines)


class RollbackGuard:
    """Compares the guard window with the view just before the switch; criteria without enough samples are mute."""

    def __init__(self, config: RollbackConfig) -> None:
        self._config = config
        self._before: VShort | None = None
        self._switched_s = 0.0
        self._hits = 0

    def arm(self, now_s: float, before: VShort | None) -> None:
        self._before, self._switched_s, self._hits = before, now_s, 0

    def disarm(self) -> None:
        self._before = None

    def over(self, now_s: float) -> bool:
        """Whether the guard window has passed."""
        return now_s - self._switched_s > self._config.window_s

    def check(self, now_s: float, view: VShort) -> str | None:
        """Why to roll back, once the window's views say so several times in a row."""
        if self._before is None:
            return None
        if self.over(now_s) or now_s - self._switched_s < self._config.settle_s:
            return None
        reason = self._worse(self._before, view)
        self._hits = self._hits + 1 if reason is not None else 0
        return reason if self._hits >= self._config.confirmations else None

    def _worse(self, before: VShort, now: VShort) -> str | None:
        c = self._config
        overloaded = now.mismatch >= c.overload_mismatch
        if overloaded and before.mismatch < c.overload_mismatch:
            return None
        if not overloaded and min(before.ttft.count, now.ttft.count) >= c.min_samples:
            limit = c.rho * max(before.ttft.p99_s, c.ttft_floor_s)
            if now.ttft.p99_s > limit:
                return f"TTFT p99 {now.ttft.p99_s:.2f} s after {before.ttft.p99_s:.2f} s before the switch"
        if min(settled_count(before), settled_count(now)) >= c.min_samples:
            limit = c.rho * max(before.violation_rate, c.violation_floor)
            if now.violation_rate > limit:
                rates = f"{now.violation_rate:.2f} after {before.violation_rate:.2f}"
                return f"violation rate {rates} before the switch"
        return None
