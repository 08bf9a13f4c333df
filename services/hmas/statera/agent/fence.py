"""The calibration of a pool's fence: quantiles of length errors by predictor version and prompt-length bucket."""

from collections.abc import Iterable, Sequence

from hmas.contracts.control import Fence, FenceBucket
from hmas.contracts.telemetry import RequestFinished, RequestRunning
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.conformal import AdaptiveLevel, ErrorBuffer, Observation, bucket_index, survival_quantile

UNBOUNDED_PROMPT = 1 << 31  # upper edge of the last bucket
_SHARE_DECAY = 0.99  # per finished request, so that about the last hundred show which predictor is in use


class VersionErrors:
    """The length errors of one predictor version, with a buffer per prompt-length bucket."""

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        self._buffers = [self._buffer() for _ in (*config.prompt_edges, UNBOUNDED_PROMPT)]
        self._running: dict[str, list[list[Observation]]] = {}  # by worker, by bucket

    def _buffer(self) -> ErrorBuffer:
        c = self._config
        return ErrorBuffer(c.buffer, AdaptiveLevel(c.epsilon, c.aci_gain, c.epsilon_min, c.epsilon_max))

    def __len__(self) -> int:
        return sum(map(len, self._buffers))

    def add(self, finished: RequestFinished) -> None:
        index = bucket_index(self._config.prompt_edges, finished.prompt_tokens)
        error = finished.output_tokens - finished.predicted_output_tokens
        self._buffers[index].add(error, finished.censored)

    def see_running(self, worker: str, running: Iterable[RequestRunning]) -> None:
        """Replaces the errors so far of the requests that run on a worker."""
        rows: list[list[Observation]] = [[] for _ in self._buffers]
        for r in running:
            index = bucket_index(self._config.prompt_edges, r.prompt_tokens)
            rows[index].append((r.output_tokens - r.predicted_output_tokens, True))
        self._running[worker] = rows

    def forget_worker(self, worker: str) -> None:
        self._running.pop(worker, None)

    def buckets(self) -> tuple[FenceBucket, ...]:
        """Returns the fence's buckets, none until there are `min_samples` errors in all. A bucket with fewer than
        `min_samples` errors gets the quantile over all buckets at the configured epsilon."""
        for index, buffer in enumerate(self._buffers):
            buffer.see_running([o for rows in self._running.values() for o in rows[index]])
        if len(self) < self._config.min_samples:
            return ()
        fallback = 0.0
        if not all(map(self._thick, self._buffers)):
            pooled = [o for buffer in self._buffers for o in buffer.observations()]
            fallback = survival_quantile(pooled, self._config.epsilon)
        edges = (*self._config.prompt_edges, UNBOUNDED_PROMPT)
        return tuple(
            FenceBucket(edge, self._quantile(buffer, fallback))
            for edge, buffer in zip(edges, self._buffers, strict=True)
        )

    def _thick(self, buffer: ErrorBuffer) -> bool:
        return len(buffer) >= self._config.min_samples

    def _quantile(self, buffer: ErrorBuffer, fallback: float) -> float:
        thick = self._thick(buffer)
        quantile = survival_quantile(buffer.observations(), buffer.level.epsilon) if thick else fallback
        buffer.quantile = quantile
        return quantile


class FenceCalibration:
    """Learns the length errors of a pool's requests and makes the fence by which its workers admit requests. The fence
    changes at most every `refresh_s`."""

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        self._versions: dict[str, VersionErrors] = {}
        self._shares: dict[str, float] = {}  # share of each predictor version among recent requests
        self._lengths = ErrorBuffer(config.buffer, AdaptiveLevel(config.rolling_epsilon, 0.0, 0.0, 1.0))
        self._fence = Fence(version="")
        self._due_s = 0.0

    def finished(self, finished: RequestFinished) -> None:
        if finished.output_tokens <= 0 and not finished.censored:
            return  # it failed before its first token, so nothing is known of its length
        self._version(finished.predictor).add(finished)
        self._lengths.add(float(finished.output_tokens), finished.censored)

    def running(self, worker: str, running: Sequence[RequestRunning]) -> None:
        """Takes note of all requests that run on a worker, in the place of those reported before."""
        by_version: dict[str, list[RequestRunning]] = {name: [] for name in self._versions}
        for r in running:
            by_version.setdefault(r.predictor, []).append(r)
        for name, rows in by_version.items():
            if name in self._versions:  # a version is known from its first finished request on
                self._versions[name].see_running(worker, rows)

    def forget_worker(self, worker: str) -> None:
        for version in self._versions.values():
            version.forget_worker(worker)

    def fence(self, now_s: float) -> Fence:
        if now_s >= self._due_s and self._versions:
            self._due_s = now_s + self._config.refresh_s
            self._fence = self._refreshed()
        return self._fence

    def _refreshed(self) -> Fence:
        """Returns the fence of the most used recent predictor version that has enough errors; without any such version,
        a fence without buckets."""
        ranked = sorted(self._versions, key=lambda name: (-self._shares[name], name))
        for name in ranked:
            buckets = self._versions[name].buckets()
            if buckets:
                return Fence(name, buckets, self._rolling_upper())
        return Fence(ranked[0], (), self._rolling_upper())

    def _rolling_upper(self) -> float:
        """Returns a conservative output length, in tokens, for a running request that outgrew its bound; 0 while too
        few lengths are known (App. C.2)."""
        observations = self._lengths.observations()
        if len(observations) < self._config.min_samples:
            return 0.0
        return survival_quantile(observations, self._config.rolling_epsilon)

    def _version(self, name: str) -> VersionErrors:
        self._shares = {known: share * _SHARE_DECAY for known, share in self._shares.items()}
        self._shares[name] = self._shares.get(name, 0.0) + 1.0 - _SHARE_DECAY
        version = self._versions.get(name)
        if version is None:
            if len(self._versions) >= self._config.max_versions:
                rarest = min(self._versions, key=lambda known: self._shares[known])
                del self._versions[rarest], self._shares[rarest]
            version = self._versions[name] = VersionErrors(self._config)
        return version
