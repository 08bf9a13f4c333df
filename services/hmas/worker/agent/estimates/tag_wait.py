"""Whether a request waits a moment for its tags before it takes its place in the order.

Tags come milliseconds after their request. While others wait that have theirs, little is lost by letting those go
first. With nobody waiting, a request that waits for its tags may leave an engine idle: that is done only under a load
that has made requests wait for much of the last minute. Under a light load, and where tags did not come in time lately,
nobody waits for them.
"""

from math import exp

from hmas.worker.agent.config import TagWaitConfig


class TagWait:
    """Measures how often tags come in time, and for what share of the time requests waited lately."""

    __slots__ = ("_config", "_in_time", "_known_s", "_pressure", "_seen_s")

    def __init__(self, config: TagWaitConfig) -> None:
        self._config = config
        self._in_time = 0.0  # share of the last requests whose tags came in time
        self._pressure = 0.0  # share of the time in which requests waited: at first of all of it, later of the last
        self._known_s = 0.0
        self._seen_s: float | None = None

    def came(self, delay_s: float) -> None:
        """Notes that tags came `delay_s` after their request."""
        self._count(1.0 if delay_s <= self._config.patience_s else 0.0)

    def overdue(self) -> None:
        """Notes that a request waited in vain."""
        self._count(0.0)

    def _count(self, in_time: float) -> None:
        self._in_time += self._config.smoothing * (in_time - self._in_time)

    def observe(self, now_s: float, *, waiting: bool) -> None:
        """Notes, once per cycle, whether requests wait for an engine."""
        if self._seen_s is not None:
            elapsed_s = now_s - self._seen_s
            self._known_s += elapsed_s
            if elapsed_s > 0.0:
                share = max(1.0 - exp(-elapsed_s / self._config.window_s), elapsed_s / self._known_s)
                self._pressure += share * (waiting - self._pressure)
        self._seen_s = now_s

    def patience_s(self, *, alone: bool) -> float:
        """Returns how long a request waits for its tags, from its arrival on. `alone`: no other waits for an engine."""
        config = self._config
        pressed = self._pressure >= (config.pressed if alone else config.busy)
        return config.patience_s if pressed and self._in_time >= config.least_in_time else 0.0
