"""How fast the engines work, measured while requests wait."""

from dataclasses import dataclass
from math import exp


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRateConfig:
    """How the rate is measured at which the engines work, in engine seconds of work per second."""

    window_s: float = 15.0  # time constant of the mean over samples
    sample_s: float = 0.5  # least length of a sample
    cold_rate: float = 0.8  # rate assumed of one engine until it is measured
    cold_s: float = 2.0  # the assumed rate weighs as much as a measurement of this many seconds


class ServiceRate:
    """The rate at which all engines together work: engine seconds of work dispatched per second, while requests wait.

    `most` is the upper limit of the rate; it can exceed `engines`, because an engine that computes prompts faster than
    predicted does more than one second of work per second.
    """

    __slots__ = ("_begun_s", "_config", "_done", "_idle", "_rate", "_seen_s", "engines", "most")

    def __init__(self, config: ServiceRateConfig) -> None:
        self._config = config
        self.engines = 1
        self.most = 1.0
        self._rate: float | None = None
        self._begun_s: float | None = None
        self._done = 0.0
        self._seen_s = config.cold_s
        self._idle = True

    @property
    def value(self) -> float:
        return self._config.cold_rate * self.engines if self._rate is None else self._rate

    def add(self, work: float) -> None:
        self._done += work

    def ran_dry(self) -> None:
        """Notes that the queue was empty for a moment, so that the present sample does not show the capacity."""
        self._idle = True

    def observe(self, now_s: float) -> None:
        sample_s = self._config.sample_s
        elapsed_s = sample_s if self._begun_s is None else now_s - self._begun_s
        if elapsed_s < sample_s:
            return
        if not self._idle:
            sample = self._done / elapsed_s
            self._seen_s += elapsed_s
            share = max(1.0 - exp(-elapsed_s / self._config.window_s), elapsed_s / self._seen_s)
            self._rate = min(self.most, self.value + share * (sample - self.value))
        self._begun_s, self._done, self._idle = now_s, 0.0, False
