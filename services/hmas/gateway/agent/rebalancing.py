"""Which requests to call back from a worker that has too much (DESIGN §3.4).

Only what the worker has not dispatched comes back, so the newest sendings are asked for first: they are the likeliest
to be queued still. Each attempt is asked for once, and the last two are left to workers that drain or are lost: who is
moved to and fro must not run out of attempts by that.
"""

from collections.abc import Sequence

from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.ledger import Ledger, LedgerEntry, RequestState
from hmas.gateway.agent.routing import Router, WorkerState


class Rebalancer:
    """Recalls a bounded few from the most loaded worker of a pool while an imbalance lasts."""

    def __init__(self, config: GatewayConfig, router: Router, ledger: Ledger) -> None:
        self._config, self._router, self._ledger = config, router, ledger
        self._checked_s = float("-inf")
        self._imbalanced: dict[str, int] = {}  # consecutive checks by pool

    def recalls(self, now_s: float) -> list[LedgerEntry]:
        """Requests to recall now; marks them as recalled."""
        if now_s - self._checked_s < self._config.rebalance_s:
            return []
        self._checked_s = now_s
        chosen: list[LedgerEntry] = []
        seen: dict[str, int] = {}
        for pool in self._router.pools():
            pair = self._imbalance(self._router.usable(pool))
            if pair is None:
                continue
            seen[pool] = self._imbalanced.get(pool, 0) + 1
            if seen[pool] >= self._config.rebalance_after:
                chosen += self._pick(*pair)
        self._imbalanced = seen
        return chosen

    def _imbalance(self, workers: Sequence[WorkerState]) -> tuple[WorkerState, WorkerState] | None:
        """Most and least loaded worker, if moving work between them is worth it. Without engines is most loaded."""
        if len(workers) < 2:
            return None
        most = max(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        least = min(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        if most.queued + most.sent_queued == 0 or least.engines_up == 0:
            return None
        gap_s = most.predicted_backlog_s - least.predicted_backlog_s
        worth = gap_s > max(self._config.rebalance_min_s, self._config.rebalance_min_share * most.predicted_backlog_s)
        return (most, least) if worth or most.engines_up == 0 else None

    def _pick(self, most: WorkerState, least: WorkerState) -> list[LedgerEntry]:
        """Newest first, until half the difference is moved or the bound on recalls is reached."""
        to_move_s = (most.predicted_backlog_s - least.predicted_backlog_s) / 2.0
        chosen: list[LedgerEntry] = []
        for entry in reversed(self._ledger.at(most.name)):
            if len(chosen) >= self._config.rebalance_recalls or (to_move_s <= 0.0 and most.engines_up):
                break
            spare = entry.attempt < self._config.max_attempts - 1
            if spare and entry.state is RequestState.SENT and not entry.recalled:
                entry.recalled = True
                to_move_s -= self._router.cost_s(entry.request, entry.annotation) / max(1, most.engines_up)
                chosen.append(entry)
        return chosen
