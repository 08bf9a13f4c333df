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
        self.active = False

    def enter(self, now_s: float) -> None:
        self.active, self._since_s, self._entered_s = True, None, now_s

    def clear(self) -> None:
        self.active, self._since_s = False, None

    def check(self, now_s: float, view: VShort) -> str | None:
        """Why xi changed, if it did; `active` is the new state."""
        return self._check_clear(now_s, view) if self.active else self._check_enter(now_s, view)

    def _check_enter(self, now_s: float, view: VShort) -> str | None:
        emergency = self._emergency(view)
        if emergency is None:
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._config.enter_after_s:
            return None
        self.enter(now_s)
        return emergency

    def _check_clear(self, now_s: float, view: VShort) -> str | None:
        if now_s - self._entered_s >= self._config.hold_max_s:
            self.clear()
            return f"held {self._config.hold_max_s:.0f} s: normal adaptation is tried again"
        if view.kept_violation_rate > self._config.clear_violation or self._stalled(view):
            self._since_s = None
            return None
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._config.clear_after_s:
            return None
        self.clear()
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

    def check(self, now_s: float, view: VShort) -> str | None:
        """Why to roll back, once the window's views say so several times in a row."""
        if self._before is None:
            return None
        age_s = now_s - self._switched_s
        if age_s > self._config.window_s:
            self.disarm()
            return None
        if age_s < self._config.settle_s:
            return None
        reason = self._worse(self._before, view)
        self._hits = self._hits + 1 if reason is not None else 0
        if reason is None or self._hits < self._config.confirmations:
            return None
        self.disarm()
        return reason

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
