"""Which waiting requests the gateway moves from an overloaded worker to another (DESIGN §3.4).

The requests sent last move first, because they would wait longest where they are. One that was sent `max_attempts`
times stays, so that nothing moves to and fro for ever.
"""

from collections.abc import Sequence

from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.routing import Router
from hmas.gateway.agent.workers import WorkerState


class Rebalancer:
    """Chooses requests to move from the most to the least loaded worker of each pool, at most `rebalance_moves` per
    check, as long as an imbalance lasts."""

    def __init__(self, config: GatewayConfig, router: Router, ledger: Ledger) -> None:
        self._config, self._router, self._ledger = config, router, ledger
        self._checked_s = float("-inf")
        self._imbalanced: dict[str, int] = {}  # consecutive checks by pool

    def moves(self, now_s: float) -> list[tuple[LedgerEntry, WorkerState]]:
        """Returns the requests to move now, each with the worker that is to get it; empty until `rebalance_s` seconds
        after the last check."""
        if now_s - self._checked_s < self._config.rebalance_s:
            return []
        self._checked_s = now_s
        chosen: list[tuple[LedgerEntry, WorkerState]] = []
        seen: dict[str, int] = {}
        for pool in self._router.pools():
            for group in self._groups(self._router.usable(pool)):
                pair = self._imbalance(group)
                if pair is None:
                    continue
                key = f"{pool} {' '.join(worker.name for worker in group)}"
                seen[key] = self._imbalanced.get(key, 0) + 1
                if seen[key] >= self._config.rebalance_after:
                    chosen += self._pick(now_s, *pair)
        self._imbalanced = seen
        return chosen

    @staticmethod
    def _groups(workers: Sequence[WorkerState]) -> list[Sequence[WorkerState]]:
        """Returns the workers between which requests may move: all of a pool, or those that serve one pace class. One
        without a working engine belongs to every group."""
        classes = sorted({number for worker in workers for number in worker.classes})
        if not classes:
            return [workers]
        return [[w for w in workers if number in w.classes or not w.engines_up] for number in classes]

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

    def _pick(self, now_s: float, most: WorkerState, least: WorkerState) -> list[tuple[LedgerEntry, WorkerState]]:
        """Chooses requests of the worker `most`, the last sent first, until half the difference of the two backlogs or
        `rebalance_moves` requests are chosen."""
        to_move_s = (most.predicted_backlog_s - least.predicted_backlog_s) / 2.0
        chosen: list[tuple[LedgerEntry, WorkerState]] = []
        for entry in reversed(self._ledger.queued_at(most.name)):
            if len(chosen) >= self._config.rebalance_moves or (to_move_s <= 0.0 and most.engines_up):
                break
            fits = least in self._router.serving(
                now_s, self._router.usable(entry.pool), entry.request, entry.annotation
            )
            if fits and entry.attempt < self._config.max_attempts and least.name not in entry.refused_by:
                to_move_s -= self._router.cost_s(entry.request, entry.annotation) / max(1, most.engines_up)
                chosen.append((entry, least))
        return chosen
