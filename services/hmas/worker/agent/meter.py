"""How fast the worker serves: predicted engine seconds done per second, and the waits that follow from it."""

from math import exp

from hmas.worker.agent.config import MeterConfig


class ServiceMeter:
    """Work is counted in predicted single-stream seconds (the prefill's, and one decode time per output token), so
    that a bias of the cost predictions cancels between the speed and the backlog it divides. Speed is measured only
    while requests wait: what an idle worker delivers is its demand, not its capacity."""

    __slots__ = ("_config", "_done_s", "_since_s", "_speed")

    def __init__(self, config: MeterConfig) -> None:
        self._config = config
        self._done_s = 0.0
        self._since_s: float | None = None
        self._speed = 0.0

    def add(self, work_s: float) -> None:
        self._done_s += work_s

    def close(self, now_s: float, *, backlogged: bool) -> None:
        """End of a cycle."""
        done_s, self._done_s = self._done_s, 0.0
        since_s, self._since_s = self._since_s, now_s
        if since_s is None or now_s <= since_s or not backlogged:
            return
        elapsed_s = now_s - since_s
        share = 1.0 - exp(-elapsed_s / self._config.window_s) if self._speed else 1.0
        self._speed += share * (done_s / elapsed_s - self._speed)

    def speed(self, cold_speed: float) -> float:
        """As measured, or `cold_speed` before any measurement."""
        return self._speed or cold_speed

    def wait_s(self, work_s: float, cold_speed: float) -> float:
        """Seconds to serve `work_s` at that speed."""
        speed = self.speed(cold_speed)
        return work_s / speed if speed > 0.0 else 0.0

    def retry_after_s(self, wait_s: float) -> float:
        """When a refused client should come back: once the present backlog is served."""
        return min(self._config.max_retry_s, max(self._config.min_retry_s, wait_s))
