"""The least of what was seen lately, such as the shortest step of an engine: that of one without prompts."""

from math import exp, inf


class LeastLately:
    """The least of the values seen, which rises to the newest one with a time constant of `memory_s` seconds.

    `value` is 0 before there is one.
    """

    __slots__ = ("_memory_s", "_seen_s", "value")

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self.clear()

    def clear(self) -> None:
        self.value, self._seen_s = 0.0, -inf

    def see(self, now_s: float, value: float) -> None:
        kept = exp(-(now_s - self._seen_s) / self._memory_s)
        self.value = min(value, value + kept * (self.value - value))
        self._seen_s = now_s
