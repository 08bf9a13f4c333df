"""How unevenly work arrives: what a plan must leave free for what it does not know of yet."""

from dataclasses import dataclass
from math import inf, sqrt


@dataclass(frozen=True, slots=True, kw_only=True)
class SurgesConfig:
    """`surge_s` is about the time that requests can wait: what comes within it is what the plan's slack must take."""

    sample_s: float = 1.0
    surge_s: float = 5.0  # time constant of the mean of work that counts as one surge
    memory_s: float = 120.0  # time constant of the statistics over surges
    forgotten_s: float = 600.0  # after a pause of this length the statistics begin anew
    tame: float = 0.25  # variation up to which nothing need be kept: that of Poisson arrivals with mixed lengths
    wild: float = 0.65  # variation from which on all but `least` is kept: that of a trace with bursts
    least: float = 0.06  # share that is given away at any variation
    trusted: int = 10  # samples before which the variation counts as `wild`


class Surges:
    """The coefficient of variation of the work that arrives within some seconds, in any unit of work."""

    __slots__ = ("_at_s", "_config", "_mean", "_now", "_samples", "_square", "_work")

    def __init__(self, config: SurgesConfig) -> None:
        self._config = config
        self._restart(-inf)

    def _restart(self, at_s: float) -> None:
        self._at_s = at_s  # the beginning of the present sample
        self._work = 0.0  # that came in it
        self._samples = 0
        self._now = self._mean = self._square = 0.0  # mean work per sample of late; its mean and mean square

    def add(self, now_s: float, work: float) -> None:
        """Notes that `work` arrived at `now_s`, which never falls."""
        self.observe(now_s)
        self._work += work

    def observe(self, now_s: float) -> None:
        """Ends the samples that are over by `now_s`."""
        config = self._config
        if now_s - self._at_s >= config.forgotten_s:
            self._restart(now_s)
        while now_s - self._at_s >= config.sample_s:
            self._samples += 1
            self._now += _weight(config.sample_s / config.surge_s, self._samples) * (self._work - self._now)
            weight = _weight(config.sample_s / config.memory_s, self._samples)
            self._mean += weight * (self._now - self._mean)
            self._square += weight * (self._now * self._now - self._square)
            self._at_s += config.sample_s
            self._work = 0.0

    @property
    def variation(self) -> float:
        """The standard deviation over the mean; `wild` before enough was seen."""
        if self._samples < self._config.trusted or self._mean <= 0.0:
            return self._config.wild
        return sqrt(max(0.0, self._square - self._mean * self._mean)) / self._mean

    @property
    def calm(self) -> float:
        """The share of slack, 1 to `least`, that need not be kept for surges: it falls evenly from `tame` to `wild`."""
        config = self._config
        return min(1.0, max(config.least, (config.wild - self.variation) / (config.wild - config.tame)))


def _weight(share: float, samples: int) -> float:
    """Returns the weight of a new sample: that of a plain mean at first."""
    return max(share, 1.0 / samples)
