"""Prefill time over prompt length, as a worker shows it."""

_ORIGIN_WEIGHT = 0.02  # of a prompt of no tokens that takes no time: decides where all prompts are of one length
_SCALE_TOKENS = 256.0  # the spread of a time grows with the prompt beyond about so many tokens


class PrefillLine:
    """seconds = base + per_token * prompt tokens, by weighted least squares with exponential forgetting.

    A cost model that knows neither model nor hardware does not even know that a longer prompt takes longer, and no
    factor mends that; two numbers measured in place do. An observation beyond `clip` times the line's own value is cut
    (a stalled engine, a prompt that waited behind many). Neither number is ever negative.
    """

    def __init__(self, known_after: int = 8, memory: float = 200.0, clip: float = 4.0) -> None:
        self._known_after = known_after
        self._keep = 1.0 - 1.0 / memory
        self._clip = clip
        self._count = 0
        self._w = _ORIGIN_WEIGHT
        self._wx = self._wy = self._wxx = self._wxy = 0.0
        self._base_s = self._per_token_s = 0.0

    @property
    def known(self) -> bool:
        """Whether enough was observed to go by."""
        return self._count >= self._known_after

    def seconds(self, prompt_tokens: int) -> float:
        return self._base_s + self._per_token_s * prompt_tokens

    def observe(self, prompt_tokens: int, seconds: float) -> None:
        """What is not positive is ignored."""
        if not (prompt_tokens > 0 and seconds > 0.0):
            return
        if self.known:
            seconds = min(seconds, self._clip * self.seconds(prompt_tokens))
        self._count += 1
        weight, x = _SCALE_TOKENS / (_SCALE_TOKENS + prompt_tokens), float(prompt_tokens)
        self._w = _ORIGIN_WEIGHT + self._keep * (self._w - _ORIGIN_WEIGHT) + weight
        self._wx = self._keep * self._wx + weight * x
        self._wy = self._keep * self._wy + weight * seconds
        self._wxx = self._keep * self._wxx + weight * x * x
        self._wxy = self._keep * self._wxy + weight * x * seconds
        self._solve()

    def _solve(self) -> None:
        slope = (self._w * self._wxy - self._wx * self._wy) / (self._w * self._wxx - self._wx**2)
        base = (self._wy - slope * self._wx) / self._w
        if slope < 0.0:
            slope, base = 0.0, self._wy / self._w
        elif base < 0.0:
            slope, base = self._wxy / self._wxx, 0.0
        self._base_s, self._per_token_s = base, slope
