"""What a time is at a worker, over one quantity that it grows with."""


class MeasuredLine:
    """seconds = base + slope * x, x >= 0, by weighted least squares with exponential forgetting.

    A cost model that knows neither model nor hardware does not even know that a longer prompt takes longer, and no
    factor mends that; two numbers measured in place do. What is measured at one x alone says nothing of the slope:
    `origin` is the weight of a made observation of nothing at x = 0, `flat` a ridge on the slope (x squared). The
    spread of a time grows with x beyond about `scale`. An observation beyond `clip` times the line's own value is cut
    (a stalled engine, a prompt that waited behind many). Neither number is ever negative.
    """

    def __init__(
        self, scale: float, origin: float = 0.0, flat: float = 0.0,
        known_after: int = 8, memory: float = 200.0, clip: float = 4.0,
    ) -> None:  # fmt: skip
        self._scale = scale
        self._origin = origin
        self._flat = flat
        self._known_after = known_after
        self._keep = 1.0 - 1.0 / memory
        self._clip = clip
        self._count = 0
        self._w = origin
        self._wx = self._wy = self._wxx = self._wxy = 0.0
        self._base_s = self._slope_s = 0.0

    @property
    def known(self) -> bool:
        """Whether enough was observed to go by."""
        return self._count >= self._known_after

    def seconds(self, x: float) -> float:
        return self._base_s + self._slope_s * x

    def observe(self, x: float, seconds: float) -> None:
        """What is not positive is ignored."""
        if not (x > 0.0 and seconds > 0.0):
            return
        if self.known:
            seconds = min(seconds, self._clip * self.seconds(x))
        self._count += 1
        weight = self._scale / (self._scale + x)
        self._w = self._origin + self._keep * (self._w - self._origin) + weight
        self._wx = self._keep * self._wx + weight * x
        self._wy = self._keep * self._wy + weight * seconds
        self._wxx = self._keep * self._wxx + weight * x * x
        self._wxy = self._keep * self._wxy + weight * x * seconds
        self._solve()

    def _solve(self) -> None:
        slope = (self._w * self._wxy - self._wx * self._wy) / (self._w * (self._wxx + self._flat) - self._wx**2)
        base = (self._wy - slope * self._wx) / self._w
        if slope < 0.0:
            slope, base = 0.0, self._wy / self._w
        elif base < 0.0:
            slope, base = self._wxy / self._wxx, 0.0
        self._base_s, self._slope_s = base, slope
