"""Extremum seeking of the utilisation band on goodput tokens (H-MAS §3.4.2)."""

from hmas.statera.agent.band import Band
from hmas.statera.agent.config import SeekerConfig

_PATTERN = (1, -1, -1, 1)  # a drift of the load that is linear over the four phases cancels


class ExtremumSeeker:
    """Tries the upper edge a little higher and a little lower, and moves it to where more goodput was."""

    def __init__(self, config: SeekerConfig) -> None:
        self._config = config
        self._centre = config.start
        self._phase = 0
        self._phase_s: float | None = None  # start of the phase; None while at rest
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
        """No dither: no backlog, a switch just happened, or bypass. A round begun is thrown away."""
        self._phase, self._phase_s = 0, None
        self._sums = [0.0] * len(_PATTERN)
        self._counts = [0] * len(_PATTERN)

    def observe(self, now_s: float, goodput_tokens_per_s: float) -> bool:
        """One V_short with a backlog; true when the centre moved."""
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
        # The dither must stay inside the limits too, or one of its sides would measure nothing.
        low = self._config.lowest + self._config.dither
        high = self._config.highest - self._config.dither
        self._centre = min(high, max(low, self._centre + step))
        return self._centre != before
