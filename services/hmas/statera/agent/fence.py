"""The calibration of a pool's fence: quantiles of length errors by predictor version and prompt-length bucket."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from math import inf
from operator import attrgetter, itemgetter

from hmas.contracts.control import Fence, FenceBucket, FenceTable
from hmas.contracts.telemetry import RequestFinished, RequestRunning
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.conformal import (
    AdaptiveLevel,
    KnownAnswer,
    bucket_index,
    revealed_weights,
    weighted_quantile,
)

UNBOUNDED_PROMPT = 1 << 31  # upper edge of the last bucket
_SHARE_DECAY = 0.99  # per finished request, so that about the last hundred show which predictors are in use
_LATEST = attrgetter("admitted_s")


class VersionCohort:
    """The requests that were last admitted by one predictor version, ended or not: those of all tenants, or of one.

    They are taken in the order of their admission and not of their end, because among those that ended lately short
    answers are too many; the weight of a request halves with every `half_life` that were admitted after it.
    """

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        c = config
        self._levels = [
            AdaptiveLevel(c.epsilon, c.aci_gain, c.epsilon_min, c.epsilon_max, c.aci_loop)
            for _ in (*c.prompt_edges, UNBOUNDED_PROMPT)
        ]
        self._ended: deque[KnownAnswer] = deque(maxlen=2 * c.cohort)
        self._running: dict[str, list[KnownAnswer]] = {}  # by worker
        self._outgrown: dict[str, set[str]] = {}  # by worker: running requests whose miss was counted already
        self._counts = [0] * len(self._levels)  # running requests by bucket
        self._published = False

    def add(self, worker: str, admitted_s: float, finished: RequestFinished) -> None:
        seen = self._observed(admitted_s, finished, finished.censored)
        self._ended.append(seen)
        missed = finished.output_tokens > finished.upper_output_tokens
        outgrown = self._outgrown.get(worker, set())
        if finished.request_id in outgrown:
            outgrown.discard(finished.request_id)
        elif missed or not finished.censored:  # one that was cut off below its bound does not show either
            self._learn(seen.bucket, missed)

    def see_running(self, worker: str, now_s: float, running: Iterable[RequestRunning]) -> None:
        """Takes note of all requests that run on a worker. One that has outgrown its bound counts at once: by the time
        that it ends, many more would have been admitted too low."""
        before, outgrown, rows = self._outgrown.get(worker, set()), set(), []
        for r in running:
            seen = self._observed(now_s - r.run_s, r, True)
            rows.append(seen)
            if r.output_tokens > r.upper_output_tokens:
                outgrown.add(r.request_id)
                if r.request_id not in before:
                    self._learn(seen.bucket, True)
        self._outgrown[worker] = outgrown
        self._running[worker] = rows
        self._count()

    def forget_worker(self, worker: str) -> None:
        self._running.pop(worker, None)
        self._outgrown.pop(worker, None)
        self._count()

    def buckets(self) -> tuple[FenceBucket, ...]:
        """Returns the fence's buckets, none until `min_samples` requests have ended. All requests together count in
        each bucket as `borrowed` of its own."""
        config = self._config
        if len(self._ended) < config.min_samples:
            return ()
        self._published = True
        running = [o for rows in self._running.values() for o in rows]
        cohort = nlargest(config.cohort, [*self._ended, *running], key=_LATEST)
        weights = [0.5 ** (rank / config.half_life) for rank in range(len(cohort))]
        rows = sorted(
            ((o.error, o.bucket, w, v) for o, w, v in zip(
                cohort, weights, revealed_weights(cohort, weights), strict=True
            )),
            key=itemgetter(0),
        )  # fmt: skip
        share = config.borrowed / sum(weights)
        edges = (*config.prompt_edges, UNBOUNDED_PROMPT)
        factors = [self._quantile(rows, index, share) for index in range(len(edges))]
        return tuple(FenceBucket(e, f, min(config.shared_factor, f)) for e, f in zip(edges, factors, strict=True))

    def _quantile(self, rows: Sequence[tuple[float, int, float, float]], index: int, share: float) -> float:
        own = [share, 1.0 + share]
        total = sum([w * own[bucket == index] for _, bucket, w, _ in rows])
        errors = [(error, v * own[bucket == index]) for error, bucket, _, v in rows]
        return weighted_quantile(errors, total, self._levels[index].epsilon)

    def _observed(self, admitted_s: float, row: RequestFinished | RequestRunning, censored: bool) -> KnownAnswer:
        bucket = bucket_index(self._config.prompt_edges, row.prompt_tokens)
        error = row.output_tokens / max(row.predicted_output_tokens_p90, 1.0)
        return KnownAnswer(admitted_s, bucket, row.output_tokens, error, censored)

    def _learn(self, bucket: int, missed: bool) -> None:
        if self._published:
            self._levels[bucket].update(missed, self._counts[bucket])

    def _count(self) -> None:
        self._counts = [0] * len(self._levels)
        for rows in self._running.values():
            for seen in rows:
                self._counts[seen.bucket] += 1


def _admitted(row: RequestFinished | RequestRunning) -> bool:
    """Tells whether the request has been admitted, by a worker that says by which prediction."""
    return bool(row.predictor) and row.predicted_output_tokens_p90 > 0.0


Key = tuple[str, str]  # predictor version and tenant; without a tenant, all requests of that version


class CohortsInUse:
    """Cohorts by key, at most `most`: a new key takes the place of the one that is rarest among recent requests."""

    def __init__(self, config: FenceConfig, most: int) -> None:
        self._config, self._most = config, most
        self._shares: dict[Key, float] = {}  # of each key among recent requests
        self.known: dict[Key, VersionCohort] = {}

    def add(self, key: Key, worker: str, admitted_s: float, finished: RequestFinished) -> None:
        self._shares = {known: share * _SHARE_DECAY for known, share in self._shares.items()}
        self._shares[key] = self._shares.get(key, 0.0) + 1.0 - _SHARE_DECAY
        if key not in self.known:
            if len(self.known) >= self._most:
                rarest = min(self.known, key=lambda known: self._shares[known])
                del self.known[rarest], self._shares[rarest]
            self.known[key] = VersionCohort(self._config)
        self.known[key].add(worker, admitted_s, finished)

    def see_running(self, worker: str, now_s: float, rows: Mapping[Key, Sequence[RequestRunning]]) -> None:
        for key, cohort in self.known.items():  # a key is known from its first finished request on
            cohort.see_running(worker, now_s, rows.get(key, ()))

    def forget_worker(self, worker: str) -> None:
        for cohort in self.known.values():
            cohort.forget_worker(worker)


class FenceCalibration:
    """Learns the length errors of a pool's requests and makes the fence by which its workers admit requests. The fence
    changes at most every `refresh_s`.

    Each predictor has a table of all requests, and one of each of the tenants that send most, where there are several:
    what one tenant's answers do says nothing of another's. If all had one table, a tenant whose prompts mislead the
    predictor would raise the bounds of all, and the memory reserved for the others' requests would stand empty.
    """

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        self._all = CohortsInUse(config, config.max_versions)
        self._own = CohortsInUse(config, config.max_tenants)
        self._lengths: deque[KnownAnswer] = deque(maxlen=config.cohort)  # of all predictors, in the order of their ends
        self._tables: dict[Key, tuple[float, FenceTable]] = {}  # of tenants, and when each was made
        self._fence = Fence()
        self._due_s = 0.0

    def finished(self, now_s: float, worker: str, finished: RequestFinished) -> None:
        if not _admitted(finished) or (finished.output_tokens <= 0 and not finished.censored):
            return  # it was never granted, or failed before its first token, so nothing is known of its length
        admitted_s = now_s - finished.age_s - finished.run_s
        self._all.add((finished.predictor, ""), worker, admitted_s, finished)
        if finished.tenant:
            self._own.add((finished.predictor, finished.tenant), worker, admitted_s, finished)
        tokens = finished.output_tokens
        self._lengths.append(KnownAnswer(admitted_s, 0, tokens, float(tokens), finished.censored))

    def running(self, now_s: float, worker: str, running: Sequence[RequestRunning]) -> None:
        """Takes note of all requests that run on a worker, in the place of those reported before."""
        rows = defaultdict[Key, list[RequestRunning]](list)
        for r in filter(_admitted, running):
            rows[r.predictor, ""].append(r)
            if r.tenant:
                rows[r.predictor, r.tenant].append(r)
        self._all.see_running(worker, now_s, rows)
        self._own.see_running(worker, now_s, rows)

    def forget_worker(self, worker: str) -> None:
        self._all.forget_worker(worker)
        self._own.forget_worker(worker)

    def fence(self, now_s: float) -> Fence:
        if now_s >= self._due_s and self._all.known:
            self._due_s = now_s + self._config.refresh_s
            tables = self._of_tenants(now_s)  # first: a worker that knows no tenants goes by a version's last table
            tables += [FenceTable(name, cohort.buckets()) for (name, _), cohort in sorted(self._all.known.items())]
            self._fence = Fence(tuple(table for table in tables if table.buckets), self._rolling_upper())
        return self._fence

    def _of_tenants(self, now_s: float) -> list[FenceTable]:
        """Returns the tenants' tables, of which `tenants_at_once` are made anew: those made longest ago."""
        several = {name for name, count in Counter(name for name, _ in self._own.known).items() if count > 1}
        keys = sorted(key for key in self._own.known if key[0] in several)
        self._tables = {key: made for key, made in self._tables.items() if key in self._own.known}
        oldest = sorted(keys, key=lambda key: self._tables[key][0] if key in self._tables else -inf)
        for name, tenant in oldest[: self._config.tenants_at_once]:
            buckets = self._own.known[name, tenant].buckets()
            self._tables[name, tenant] = (now_s, FenceTable(name, buckets, tenant))
        return [self._tables[key][1] for key in keys if key in self._tables]

    def _rolling_upper(self) -> float:
        """Returns a conservative output length, in tokens, for a running request that outgrew its bound; 0 while too
        few lengths are known (App. C.2)."""
        if len(self._lengths) < self._config.min_samples:
            return 0.0
        rows = sorted(self._lengths, key=attrgetter("error"))
        weights = revealed_weights(rows, [1.0] * len(rows))
        pairs = [(row.error, weight) for row, weight in zip(rows, weights, strict=True)]
        return weighted_quantile(pairs, float(len(rows)), self._config.rolling_epsilon)
