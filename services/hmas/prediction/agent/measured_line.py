"""A straight line through the times that a worker measured, over one quantity that they grow with."""


class MeasuredLine:
    """Fits seconds = base + slope * x, x >= 0, by weighted least squares with exponential forgetting.

    A cost model that knows neither the language model nor the hardware cannot tell how much longer a longer prompt
    takes, and no factor on its times corrects that; base and slope, measured at the worker, do. Times measured at only
    one x do not determine the slope, so there are two regularisers: `origin` is the weight of an artificial observation
    of 0 s at x = 0, and `flat` is a ridge on the slope (in units of x squared). The spread of a time grows with x
    beyond about `scale`, and the weights fall accordingly. An observation above `clip` times the line's own value is
    cut to that (a stalled engine, a prompt that waited behind many). Base and slope are never negative. The line is
    `known` after `known_after` observations and remembers about the last `memory`.
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
        """Whether there were enough observations to use the line."""
        return self._count >= self._known_after

    def seconds(self, x: float) -> float:
        return self._base_s + self._slope_s * x

    def observe(self, x: float, seconds: float) -> None:
        """Adds an observation; one whose x or time is not positive is ignored."""
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
