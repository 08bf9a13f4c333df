"""Fail open: where the gateway places requests by itself while the worker of an engine is silent.

An engine is in bypass when nothing was heard of its worker for `after_s` and the worker was not draining. The
gateway then runs at most its share of the engine's slots there, counting what it runs there already. It knows no fence:
the share is the only bound. An engine that has shown no life since its worker fell silent gets one request at a time,
because engine and worker may have died together, and one that fails is left alone for a while.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from hmas.contracts.registry import EngineInfo
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.requests.ledger import EngineRef, Ledger, LedgerEntry
from hmas.gateway.agent.routing.routing import Router


@dataclass(slots=True)
class EngineTrial:
    """What an engine showed since its worker fell silent; instants and durations in seconds.

    `proven`: it answered. `tried_s`: when its first request was placed. `pause_s`: its last pause, which ends at
    `paused_until_s`.
    """

    proven: bool = False
    tried_s: float = -inf
    pause_s: float = 0.0
    paused_until_s: float = -inf


class Bypass:
    """Chooses engines for requests that the gateway places by itself."""

    def __init__(self, config: GatewayConfig, router: Router, ledger: Ledger) -> None:
        self._config, self._router, self._ledger = config.fail_open, router, ledger
        self._trials: dict[EngineRef, EngineTrial] = {}

    def covers(self, now_s: float, pool: str) -> bool:
        """Returns whether an engine of the pool is in bypass."""
        return next(self._engines(now_s, pool), None) is not None

    def allows(self, entry: LedgerEntry) -> bool:
        """Returns whether the request may be placed: it may not after `tries` failures."""
        return entry.bypass_failures < self._config.tries

    def choose(self, now_s: float, pool: str) -> EngineRef | None:
        """Returns the engine in bypass with the smallest part of this gateway's slots taken, or None if none is
        free."""
        chosen, least = None, 1.0
        for worker, engine in self._engines(now_s, pool):
            ref = worker.name, engine.engine
            slots = worker.shares.get(engine.engine, max(1, engine.max_num_seqs // 4))
            taken = self._ledger.running_on(ref) / slots if slots > 0 else inf
            if taken < least and self._is_open(now_s, ref):
                chosen, least = ref, taken
        return chosen

    def least_outstanding(self, now_s: float, pool: str) -> EngineRef | None:
        """Returns the working engine that runs the fewest of this gateway's requests, whatever its limits, or None if
        there is none but those that have just failed."""
        refs = [(worker.name, engine.engine) for worker, engine in self._router.working(pool)]
        healthy = [ref for ref in refs if now_s >= self._trials.get(ref, EngineTrial()).paused_until_s]
        return min(healthy, key=self._ledger.running_on, default=None)

    def placed(self, now_s: float, ref: EngineRef) -> None:
        trial = self._trials.setdefault(ref, EngineTrial())
        if not trial.proven:
            trial.tried_s = now_s

    def answered(self, ref: EngineRef) -> None:
        """Records a sign of life: a token, or an answer that is not a failure of the engine."""
        trial = self._trials.setdefault(ref, EngineTrial())
        trial.proven, trial.pause_s = True, 0.0

    def failed(self, now_s: float, ref: EngineRef) -> None:
        """Records that a run failed at the engine, which gets nothing for `pause_s`, and for twice as long after
        each further failure without an answer in between."""
        trial = self._trials.setdefault(ref, EngineTrial())
        if now_s < trial.paused_until_s:
            return  # several runs failed at once
        trial.pause_s = min(self._config.max_pause_s, max(self._config.pause_s, 2.0 * trial.pause_s))
        trial.proven, trial.tried_s, trial.paused_until_s = False, -inf, now_s + trial.pause_s

    def left(self, ref: EngineRef) -> None:
        """Records that a request left the engine before its end, so that it shows nothing."""
        trial = self._trials.get(ref)
        if trial is not None:
            trial.tried_s = -inf

    def forget(self, worker: str) -> None:
        """Drops what is known of a worker's engines, because their worker is back."""
        for ref in [ref for ref in self._trials if ref[0] == worker]:
            del self._trials[ref]

    def _engines(self, now_s: float, pool: str) -> Iterator[tuple[KnownWorker, EngineInfo]]:
        if self._config.enabled:
            silent_s = now_s - self._config.after_s
            yield from (each for each in self._router.silent(pool) if each[0].silent_since_s <= silent_s)

    def _is_open(self, now_s: float, ref: EngineRef) -> bool:
        trial = self._trials.get(ref)
        if trial is None:
            return True
        tried = trial.proven or now_s - trial.tried_s >= self._config.trial_s
        return tried and now_s >= trial.paused_until_s
