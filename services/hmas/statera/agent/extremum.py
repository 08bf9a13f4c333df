"""Moves the utilisation band to where the most goodput tokens are served, by extremum seeking (H-MAS §3.4.2)."""

from hmas.statera.agent.band import Band
from hmas.statera.agent.config import SeekerConfig

_PATTERN = (1, -1, -1, 1)  # signs of the dither in the four phases; a linear drift of the load cancels out


class ExtremumSeeker:
    """Tries the upper edge of the band a little higher and a little lower in turn, and moves it to the side on which
    there were more goodput tokens per second."""

    def __init__(self, config: SeekerConfig) -> None:
        self._config = config
        self._centre = config.start
        self._phase = 0
        self._phase_s: float | None = None  # start of the phase; None while nothing is tried
        self._sums = [0.0] * len(_PATTERN)
        self._counts = [0] * len(_PATTERN)
        self.best_tokens_per_s = 0.0  # tg_best: highest goodput of a phase so far

    @property
    def centre(self) -> float:
        return self._centre

    def band(self) -> Band:
        dither = 0.0 if self._phase_s is None else self._config.dither * _PATTERN[self._phase]
        high = min(self._config.highest, max(self._config.lowest, self._centre + dither))
        return Band(high - self._config.width, high)

    def rest(self) -> None:
        """Stops the trials and discards the present round, because there is no backlog, the topology has just been
        switched, or a bypass is on."""
        self._phase, self._phase_s = 0, None
        self._sums = [0.0] * len(_PATTERN)
        self._counts = [0] * len(_PATTERN)

    def observe(self, now_s: float, goodput_tokens_per_s: float) -> bool:
        """Takes the goodput of one V_short of a pool with a backlog, and tells whether the band moved."""
        if not self._config.enabled:
            return False
        if self._phase_s is None:
            self._phase_s = now_s
        elapsed = now_s - self._phase_s
        if elapsed >= self._config.settle_s:
            self._sums[self._phase] += goodput_tokens_per_s
            self._counts[self._phase] += 1
        if elapsed < self._config.settle_s + self._config.measure_s:
            return False
        self._phase_s = now_s
        self._phase += 1
        return self._finish_round() if self._phase == len(_PATTERN) else False

    def _finish_round(self) -> bool:
        means = [total / max(count, 1) for total, count in zip(self._sums, self._counts, strict=True)]
        self.best_tokens_per_s = max(self.best_tokens_per_s, *means)
        gradient = sum(sign * mean for sign, mean in zip(_PATTERN, means, strict=True)) / max(sum(means), 1e-9)
        self.rest()
        if abs(gradient) < self._config.significance:
            return False
        before = self._centre
        step = max(-self._config.dither, min(self._config.dither, self._config.gain * gradient))
        # The dithered edge must stay inside the limits too; otherwise the two sides would not differ as they should.
        low = self._config.lowest + self._config.dither
        high = self._config.highest - self._config.dither
        self._centre = min(high, max(low, self._centre + step))
        return self._centre != before
