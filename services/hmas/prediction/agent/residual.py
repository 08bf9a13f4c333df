"""Corrects a cost model online by a factor, from what a worker measures."""

from math import exp, log

_FIRST_SCALE = 0.7  # the spread that is assumed at first: in the logarithm, a factor of two
_SCALE_GAIN = 0.05


class ResidualScale:
    """A factor on predictions: the exponential of a robust running mean of log(observed / predicted).

    The gain of the mean is 1/n for the n-th observation and never below `floor`, so that the factor settles within a
    few dozen requests and follows a change within about 1/floor requests. Deviations beyond `clip` times their usual
    size are cut (Huber), so that an occasional cached prefix or stalled engine does not move it. The factor stays
    between 1/`limit` and `limit`.
    """

    def __init__(self, floor: float = 0.02, clip: float = 2.5, limit: float = 100.0) -> None:
        self._floor = floor
        self._clip = clip
        self._limit = log(limit)
        self._count = 0
        self._log = 0.0
        self._spread = _FIRST_SCALE

    @property
    def factor(self) -> float:
        return exp(self._log)

    def update(self, observed: float, predicted: float) -> None:
        """Adds an observed time and the model's uncorrected prediction of it. Times of 0 or less are ignored."""
        if not (observed > 0.0 and predicted > 0.0):
            return
        self._count += 1
        innovation = log(observed / predicted) - self._log
        bound = self._clip * self._spread
        cut = max(-bound, min(bound, innovation))
        moved = self._log + max(self._floor, 1.0 / self._count) * cut
        self._log = max(-self._limit, min(self._limit, moved))
        self._spread += _SCALE_GAIN * (abs(cut) - self._spread)
