"""Measures how fast the worker serves, in predicted engine seconds of work per second, and derives waits from it."""

from math import exp

from hmas.worker.agent.config import MeterConfig


class ServiceMeter:
    """The worker's speed: work done per second, with work in the predicted seconds of a request that runs alone.

    Work is counted as predicted (a request's prefill, and one decode time per output token), so that a bias of the cost
    predictions cancels when a backlog is divided by the speed. Speed is measured only while requests wait, because an
    idle worker delivers what is asked of it, not what it could.
    """

    __slots__ = ("_config", "_done_s", "_since_s", "_speed")

    def __init__(self, config: MeterConfig) -> None:
        self._config = config
        self._done_s = 0.0
        self._since_s: float | None = None
        self._speed = 0.0

    def add(self, work_s: float) -> None:
        self._done_s += work_s

    def close(self, now_s: float, *, backlogged: bool) -> None:
        """Ends a measurement, once per cycle. `backlogged`: requests wait and an engine is up, so that the work done
        shows the worker's capacity; otherwise the measurement is dropped."""
        done_s, self._done_s = self._done_s, 0.0
        since_s, self._since_s = self._since_s, now_s
        if since_s is None or now_s <= since_s or not backlogged:
            return
        elapsed_s = now_s - since_s
        share = 1.0 - exp(-elapsed_s / self._config.window_s) if self._speed else 1.0
        self._speed += share * (done_s / elapsed_s - self._speed)

    def speed(self, cold_speed: float) -> float:
        """Returns the measured speed, or `cold_speed` before the first measurement."""
        return self._speed or cold_speed

    def wait_s(self, work_s: float, cold_speed: float) -> float:
        """Returns the seconds that `work_s` of work take at the present speed; 0 if the speed is 0."""
        speed = self.speed(cold_speed)
        return work_s / speed if speed > 0.0 else 0.0

    def retry_after_s(self, wait_s: float) -> float:
        """Returns the seconds after which a refused client should try again: `wait_s`, kept within the configured
        bounds."""
        return min(self._config.max_retry_s, max(self._config.min_retry_s, wait_s))
