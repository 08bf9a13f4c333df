"""The guards that watch V_short: the emergency bypass and the rollback (H-MAS App. C.2, Eq. 12)."""

from hmas.contracts.views import VShort
from hmas.meta.agent.config import BypassConfig, RollbackConfig


def settled_count(view: VShort) -> float:
    """Returns about how many requests settled in the view's window."""
    return view.settled_rps * view.window_s


class BypassGuard:
    """Tells when a pool's bypass (xi) should begin and end, with hysteresis: an emergency must last before the bypass
    begins, and must be gone for some time before it ends. Violations count only for requests that were not relegated,
    because while a backlog of relegated ones is served, all that settle may be late."""

    def __init__(self, config: BypassConfig) -> None:
        self._config = config
        self._since_s: float | None = None  # since when the condition to begin, or to end, the bypass holds
        self._entered_s = 0.0

    def begin(self, now_s: float) -> None:
        """Notes that the bypass began at `now_s`."""
        self._since_s, self._entered_s = None, now_s

    def rest(self) -> None:
        """Notes that there is no bypass, and forgets since when an emergency was seen."""
        self._since_s = None

    def emergency(self, now_s: float, view: VShort) -> str | None:
        """Returns why the bypass should begin, once an emergency has lasted for `enter_after_s`, otherwise None."""
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
        """Returns why the bypass should end: the emergency has been gone for `clear_after_s`, or the bypass has lasted
        `hold_max_s`. Otherwise returns None."""
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
        choked = view.queued > view.queued_asleep and view.served_tokens_per_s < self._config.stall_tokens_per_s
        return choked and any(engine.up and not engine.asleep for engine in view.engines)


class RollbackGuard:
    """Compares the views after a switch of topology with the one just before it. A criterion for which there are too
    few samples is skipped."""

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
        """Tells whether the guard window after the switch has passed."""
        return now_s - self._switched_s > self._config.window_s

    def check(self, now_s: float, view: VShort) -> str | None:
        """Returns why to roll back, once enough views in a row within the guard window were worse, otherwise None."""
        if self._before is None:
            return None
        if self.over(now_s) or now_s - self._switched_s < self._config.settle_s:
            return None
        reason = self._worse(self._before, view)
        self._hits = self._hits + 1 if reason is not None else 0
        return reason if self._hits >= self._config.confirmations else None

    def _worse(self, before: VShort, now: VShort) -> str | None:
        c = self._config
        backlog_s = before.queued / max(before.arrival_rps, 1e-9)
        was = before.mismatch >= c.overload_mismatch or backlog_s >= c.overload_backlog_s
        overloaded = now.mismatch >= c.overload_mismatch
        if overloaded and not was:
            return None
        if not (overloaded or was) and min(before.ttft.count, now.ttft.count) >= c.min_samples:
            limit = c.rho * max(before.ttft.p99_s, c.ttft_floor_s)
            if now.ttft.p99_s > limit:
                return f"TTFT p99 {now.ttft.p99_s:.2f} s after {before.ttft.p99_s:.2f} s before the switch"
        if min(settled_count(before), settled_count(now)) >= c.min_samples:
            limit = c.rho * max(before.violation_rate, c.violation_floor)
            if now.violation_rate > limit:
                rates = f"{now.violation_rate:.2f} after {before.violation_rate:.2f}"
                return f"violation rate {rates} before the switch"
        return None
