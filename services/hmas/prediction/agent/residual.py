"""Online correction of a cost model by what a worker measures."""

from math import exp, log

_FIRST_SCALE = 0.7  # a factor of two, before anything is known of the spread
_SCALE_GAIN = 0.05


class ResidualScale:
    """A factor on predictions: a robust running mean of log(observed / predicted).

    The gain is 1/n at first and never below `floor`, so that it settles within a few dozen requests and follows a
    change within some 1/floor. Innovations beyond `clip` times their usual size are cut (Huber), so that a cached
    prefix or a stalled engine now and then does not move it.
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
        """`predicted` is the model's own, uncorrected. What is not positive is ignored."""
        if not (observed > 0.0 and predicted > 0.0):
            return
        self._count += 1
        innovation = log(observed / predicted) - self._log
        bound = self._clip * self._spread
        cut = max(-bound, min(bound, innovation))
        moved = self._log + max(self._floor, 1.0 / self._count) * cut
        self._log = max(-self._limit, min(self._limit, moved))
        self._spread += _SCALE_GAIN * (abs(cut) - self._spread)
