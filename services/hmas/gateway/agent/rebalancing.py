"""Which waiting requests the gateway moves from an overloaded worker to another (DESIGN §3.4).

The requests sent last move first, because they would wait longest where they are. One that was sent `max_attempts`
times stays, so that nothing moves to and fro for ever.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.routing import Router
from hmas.gateway.agent.workers import WorkerState

LOOKED_AT = 16  # waiting requests that are looked at, for each that may move


class Rebalancer:
    """Chooses requests to move from the most loaded worker of each pool to the least loaded that serves them, at most
    `rebalance_moves` per check, as long as an imbalance lasts."""

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
                most = self._overloaded(group)
                if most is None:
                    continue
                key = f"{pool} {' '.join(worker.name for worker in group)}"
                seen[key] = self._imbalanced.get(key, 0) + 1
                if seen[key] >= self._config.rebalance_after:
                    chosen += self._pick(now_s, most, group)
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

    def _overloaded(self, workers: Sequence[WorkerState]) -> WorkerState | None:
        """Returns the most loaded worker, or None if moving requests to the least loaded one is not worth it. A worker
        without a working engine counts as the most loaded."""
        if len(workers) < 2:
            return None
        most = max(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        least = min(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        if most.queued + most.sent_queued == 0 or least.engines_up == 0:
            return None
        return most if self._worth(most, least) else None

    def _worth(self, most: WorkerState, least: WorkerState) -> bool:
        gap_s = most.predicted_backlog_s - least.predicted_backlog_s
        least_gap_s = max(self._config.rebalance_min_s, self._config.rebalance_min_share * most.predicted_backlog_s)
        return gap_s > least_gap_s or most.engines_up == 0

    def _pick(
        self, now_s: float, most: WorkerState, group: Sequence[WorkerState]
    ) -> list[tuple[LedgerEntry, WorkerState]]:
        """Chooses requests of the worker `most`, the last sent first, until `rebalance_moves` are chosen, and for each
        the least loaded worker of the group that serves it, until half the difference of the two backlogs is moved."""
        others = {worker.name for worker in group if worker is not most and worker.engines_up}
        given_s: defaultdict[str, float] = defaultdict(float)
        chosen: list[tuple[LedgerEntry, WorkerState]] = []
        for entry in islice(reversed(self._ledger.queued_at(most.name)), LOOKED_AT * self._config.rebalance_moves):
            if len(chosen) >= self._config.rebalance_moves:
                break
            if entry.attempt >= self._config.max_attempts:
                continue
            serving = self._router.serving(now_s, self._router.usable(entry.pool), entry.request, entry.annotation)
            fitting = [w for w in serving if w.name in others and w.name not in entry.refused_by]
            least = min(fitting, key=lambda w: w.predicted_backlog_s + given_s[w.name], default=None)
            if least is None or not self._worth(most, least):
                continue
            gap_s = most.predicted_backlog_s - sum(given_s.values()) - least.predicted_backlog_s - given_s[least.name]
            if gap_s > 0.0 or not most.engines_up:
                given_s[least.name] += self._router.cost_s(entry.request, entry.annotation) / max(1, most.engines_up)
                chosen.append((entry, least))
        return chosen
