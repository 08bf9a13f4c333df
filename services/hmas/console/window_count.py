"""Counts over a moving window of time."""

from collections import Counter, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WindowCount(Generic[K]):
    """Counts of the last `window_s` seconds by key, in sixty steps; of at most `most` keys at a time, further ones are
    not counted."""

    def __init__(self, most: int, window_s: float) -> None:
        self.counts: Counter[K] = Counter()
        self._most, self._window_s = most, window_s
        self._steps: deque[tuple[float, Counter[K]]] = deque()

    def add(self, now_s: float, key: K) -> None:
        self.expire(now_s)
        if key not in self.counts and len(self.counts) >= self._most:
            return
        if not self._steps or now_s - self._steps[-1][0] >= self._window_s / 60:
            self._steps.append((now_s, Counter()))
        self._steps[-1][1][key] += 1
        self.counts[key] += 1

    def expire(self, now_s: float) -> None:
        while self._steps and now_s - self._steps[0][0] > self._window_s:
            self.counts -= self._steps.popleft()[1]
