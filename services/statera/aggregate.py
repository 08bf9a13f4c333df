"""Calibration of the aggregate peak: per-request bounds, summed, reserve more than a batch ever takes."""

from collections.abc import Sequence

from services.contracts.telemetry import RequestRunning
from services.statera.config import FenceConfig
from services.statera.conformal import AdaptiveLevel, ErrorBuffer, conformal_rank, survival_quantile


class AggregatePeak:
    """The (1 - eps)-quantile of max over a window of (tokens held) / (sum of bounds), over engines and windows."""

    def __init__(self, config: FenceConfig) -> None:
        self._config = config
        self._points = ErrorBuffer(config.buffer, AdaptiveLevel(config.aggregate_epsilon, 0.0, 0.0, 1.0))
        self._open: dict[tuple[str, str], tuple[float, float]] = {}  # (worker, engine): window's start, peak

    def sample(self, now_s: float, worker: str, running: Sequence[RequestRunning]) -> None:
        by_engine: dict[str, list[RequestRunning]] = {}
        for r in running:
            by_engine.setdefault(r.engine, []).append(r)
        for engine, rows in by_engine.items():
            if len(rows) >= self._config.aggregate_min_running:
                self._see(now_s, (worker, engine), _ratio(rows))

    def _see(self, now_s: float, key: tuple[str, str], ratio: float) -> None:
        start, peak = self._open.get(key, (now_s, ratio))
        if now_s - start >= self._config.aggregate_window_s:
            self._points.add(peak, False)
            start, peak = now_s, ratio
        self._open[key] = (start, max(peak, ratio))

    def forget_worker(self, worker: str) -> None:
        self._open = {key: value for key, value in self._open.items() if key[0] != worker}

    def ratio(self) -> float | None:
        """None until there are enough windows for a finite-sample quantile."""
        count = len(self._points)
        if not count or conformal_rank(count, self._config.aggregate_epsilon) > count:
            return None
        return survival_quantile(self._points.observations(), self._config.aggregate_epsilon)


def _ratio(rows: Sequence[RequestRunning]) -> float:
    held = sum(r.prompt_tokens + r.output_tokens for r in rows)
    bounds = sum(r.prompt_tokens + max(r.upper_output_tokens, 1.0) for r in rows)
    return held / bounds
