"""The calibration of a pool's fence: quantiles of length errors by predictor version and prompt-length bucket."""

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
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
    """The requests that were last admitted by one predictor version, ended or not.

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


class FenceCalibration:
    """Learns the length errors of a pool's requests and makes the fence by which its workers admit requests. The fence
    changes at most every `refresh_s`."""

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        self._versions: dict[str, VersionCohort] = {}
        self._shares: dict[str, float] = {}  # share of each predictor version among recent requests
        self._lengths: deque[KnownAnswer] = deque(maxlen=config.cohort)  # of all predictors, in the order of their ends
        self._fence = Fence()
        self._due_s = 0.0

    def finished(self, now_s: float, worker: str, finished: RequestFinished) -> None:
        if not _admitted(finished) or (finished.output_tokens <= 0 and not finished.censored):
            return  # it was never granted, or failed before its first token, so nothing is known of its length
        admitted_s = now_s - finished.age_s - finished.run_s
        self._version(finished.predictor).add(worker, admitted_s, finished)
        tokens = finished.output_tokens
        self._lengths.append(KnownAnswer(admitted_s, 0, tokens, float(tokens), finished.censored))

    def running(self, now_s: float, worker: str, running: Sequence[RequestRunning]) -> None:
        """Takes note of all requests that run on a worker, in the place of those reported before."""
        by_version: dict[str, list[RequestRunning]] = {name: [] for name in self._versions}
        for r in filter(_admitted, running):
            by_version.setdefault(r.predictor, []).append(r)
        for name, rows in by_version.items():
            if name in self._versions:  # a version is known from its first finished request on
                self._versions[name].see_running(worker, now_s, rows)

    def forget_worker(self, worker: str) -> None:
        for version in self._versions.values():
            version.forget_worker(worker)

    def fence(self, now_s: float) -> Fence:
        if now_s >= self._due_s and self._versions:
            self._due_s = now_s + self._config.refresh_s
            tables = (FenceTable(name, version.buckets()) for name, version in sorted(self._versions.items()))
            self._fence = Fence(tuple(table for table in tables if table.buckets), self._rolling_upper())
        return self._fence

    def _rolling_upper(self) -> float:
        """Returns a conservative output length, in tokens, for a running request that outgrew its bound; 0 while too
        few lengths are known (App. C.2)."""
        if len(self._lengths) < self._config.min_samples:
            return 0.0
        rows = sorted(self._lengths, key=attrgetter("error"))
        weights = revealed_weights(rows, [1.0] * len(rows))
        pairs = [(row.error, weight) for row, weight in zip(rows, weights, strict=True)]
        return weighted_quantile(pairs, float(len(rows)), self._config.rolling_epsilon)

    def _version(self, name: str) -> VersionCohort:
        self._shares = {known: share * _SHARE_DECAY for known, share in self._shares.items()}
        self._shares[name] = self._shares.get(name, 0.0) + 1.0 - _SHARE_DECAY
        version = self._versions.get(name)
        if version is None:
            if len(self._versions) >= self._config.max_versions:
                rarest = min(self._versions, key=lambda known: self._shares[known])
                del self._versions[rarest], self._shares[rarest]
            version = self._versions[name] = VersionCohort(self._config)
        return version
