"""Which waiting requests the gateway moves from an overloaded worker to another (DESIGN §3.4).

The requests sent last move first, because they would wait longest where they are. One that was sent `max_attempts`
times stays, so that nothing moves to and fro for ever.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.requests.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.routing.choice import serving_workers
from hmas.gateway.agent.routing.routing import Router

LOOKED_AT = 16  # waiting requests that are looked at, for each that may move


class Rebalancer:
    """Chooses requests to move from the most loaded worker of each pool to the least loaded that serves them, at most
    `moves` per check, as long as an imbalance lasts. That all engines of a worker are asleep is reason enough at
    once."""

    def __init__(self, config: GatewayConfig, router: Router, ledger: Ledger) -> None:
        self._config, self._max_attempts = config.rebalance, config.max_attempts
        self._router, self._ledger = router, ledger
        self._checked_s = float("-inf")
        self._imbalanced: dict[str, int] = {}  # consecutive checks by pool

    def moves(self, now_s: float) -> list[tuple[LedgerEntry, KnownWorker]]:
        """Returns the requests to move now, each with the worker that is to get it; empty until `every_s` seconds
        after the last check."""
        if now_s - self._checked_s < self._config.every_s:
            return []
        self._checked_s = now_s
        chosen: list[tuple[LedgerEntry, KnownWorker]] = []
        seen: dict[str, int] = {}
        for pool in self._router.pools():
            for group in self._groups(self._router.usable(pool)):
                most = self._overloaded(group)
                if most is None:
                    continue
                key = f"{pool} {' '.join(worker.name for worker in group)}"
                seen[key] = self._imbalanced.get(key, 0) + 1
                if seen[key] >= self._config.after or most.asleep:
                    chosen += self._pick(now_s, most, group)
        self._imbalanced = seen
        return chosen

    @staticmethod
    def _groups(workers: Sequence[KnownWorker]) -> list[Sequence[KnownWorker]]:
        """Returns the workers between which requests may move: all of a pool, or those that serve one pace class. One
        without a working engine belongs to every group."""
        classes = sorted({number for worker in workers for number in worker.classes})
        if not classes:
            return [workers]
        return [[w for w in workers if number in w.classes or not w.engines_up] for number in classes]

    def _overloaded(self, workers: Sequence[KnownWorker]) -> KnownWorker | None:
        """Returns the most loaded worker, or None if moving requests to the least loaded one is not worth it. A worker
        without a working engine counts as the most loaded."""
        if len(workers) < 2:
            return None
        most = max(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        least = min(workers, key=lambda w: (w.engines_up == 0, w.predicted_backlog_s))
        if most.queued + most.sent_queued == 0 or least.engines_up == 0:
            return None
        return most if self._worth(most, least) else None

    def _worth(self, most: KnownWorker, least: KnownWorker) -> bool:
        gap_s = most.predicted_backlog_s - least.predicted_backlog_s
        least_gap_s = max(self._config.min_s, self._config.min_share * most.predicted_backlog_s)
        return gap_s > least_gap_s or most.engines_up == 0

    def _pick(
        self, now_s: float, most: KnownWorker, group: Sequence[KnownWorker]
    ) -> list[tuple[LedgerEntry, KnownWorker]]:
        """Chooses requests of the worker `most`, the last sent first, until `moves` are chosen, and for each
        the least loaded worker of the group that serves it, until half the difference of the two backlogs is moved."""
        others = {worker.name for worker in group if worker is not most and worker.engines_up}
        taken_s, given_s = 0.0, defaultdict[str, float](float)  # each by the costs and engines of its worker
        chosen: list[tuple[LedgerEntry, KnownWorker]] = []
        for entry in islice(reversed(self._ledger.queued_at(most.name)), LOOKED_AT * self._config.moves):
            if len(chosen) >= self._config.moves:
                break
            if entry.attempt >= self._max_attempts:
                continue
            serving = serving_workers(now_s, self._router.usable(entry.pool), entry.request, entry.annotation)
            fitting = [w for w in serving if w.name in others and w.name not in entry.refused_by]
            least = min(fitting, key=lambda w: w.predicted_backlog_s + given_s[w.name], default=None)
            if least is None or not self._worth(most, least):
                continue
            gap_s = most.predicted_backlog_s - taken_s - least.predicted_backlog_s - given_s[least.name]
            if gap_s > 0.0 or not most.engines_up:
                taken_s += self._share_s(most, entry)
                given_s[least.name] += self._share_s(least, entry)
                chosen.append((entry, least))
        return chosen

    def _share_s(self, worker: KnownWorker, entry: LedgerEntry) -> float:
        """Returns the seconds that a request is of a worker's backlog, which its engines serve side by side."""
        return self._router.cost_s(worker, entry.request, entry.annotation) / max(1, worker.engines_up)
