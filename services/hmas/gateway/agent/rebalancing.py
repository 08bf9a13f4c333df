"""Which requests the gateway recalls from an overloaded worker (DESIGN §3.4).

A worker hands back only what it has not dispatched, so the requests sent last are recalled first: they most likely
still wait. Each attempt is recalled at most once. A request's last two attempts are never recalled, so that moving it
for balance does not use up the attempts it needs when a worker drains or is lost.
"""

from collections.abc import Sequence

from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.ledger import Ledger, LedgerEntry, RequestState
from hmas.gateway.agent.routing import Router, WorkerState


class Rebalancer:
    """Chooses requests to recall from the most loaded worker of each pool, at most `rebalance_recalls` per check, as
    long as an imbalance lasts."""

    def __init__(self, config: GatewayConfig, router: Router, ledger: Ledger) -> None:
        self._config, self._router, self._ledger = config, router, ledger
        self._checked_s = float("-inf")
        self._imbalanced: dict[str, int] = {}  # consecutive checks by pool

    def recalls(self, now_s: float) -> list[LedgerEntry]:
        """Returns the requests to recall now and marks them as recalled; empty until `rebalance_s` seconds after the
        last check."""
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
        """Returns the most and the least loaded worker, or None if moving requests between them is not worth it. A
        worker without a working engine counts as the most loaded."""
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
        """Chooses requests of the worker `most`, the last sent first, until half the difference of the two backlogs or
        `rebalance_recalls` requests are chosen."""
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
