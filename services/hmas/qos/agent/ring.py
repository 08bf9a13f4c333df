"""A sliding window as a ring of time buckets."""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Generic, TypeVar

B = TypeVar("B")


class Ring(Generic[B]):
    """The buckets of the last `window_s` seconds, oldest first. There is no bucket for a time without an event."""

    def __init__(self, window_s: float, bucket_s: float, make: Callable[[], B]) -> None:
        self._bucket_s = bucket_s
        self._count = ceil(window_s / bucket_s)
        self._make = make
        self._buckets: deque[tuple[int, B]] = deque()
        self._first: int | None = None

    def at(self, now_s: float) -> B:
        """Returns the bucket of this instant, and makes it if there is none."""
        index = int(now_s // self._bucket_s)
        if self._first is None:
            self._first = index
        self._expire(index)
        if not self._buckets or self._buckets[-1][0] != index:
            self._buckets.append((index, self._make()))
        return self._buckets[-1][1]

    def live(self, now_s: float) -> list[B]:
        return [bucket for _, bucket in self.indexed(now_s)]

    def indexed(self, now_s: float) -> list[tuple[int, B]]:
        """Returns the buckets in the window with their ages, as (age in buckets, bucket), oldest first."""
        index = int(now_s // self._bucket_s)
        self._expire(index)
        return [(index - i, bucket) for i, bucket in self._buckets]

    def span_s(self, now_s: float) -> float:
        """Returns the seconds that the window covers: at least one bucket, and less than `window_s` after a start."""
        if self._first is None:
            return self._bucket_s
        oldest = max(self._first, int(now_s // self._bucket_s) - self._count + 1)
        return max(now_s - oldest * self._bucket_s, self._bucket_s)

    def _expire(self, index: int) -> None:
        while self._buckets and self._buckets[0][0] <= index - self._count:
            self._buckets.popleft()
