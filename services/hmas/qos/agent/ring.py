"""A sliding window as a ring of time buckets."""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Generic, TypeVar

B = TypeVar("B")


class Ring(Generic[B]):
    """The buckets of the last `window_s` seconds, oldest first; buckets in which nothing happened do not exist."""

    def __init__(self, window_s: float, bucket_s: float, make: Callable[[], B]) -> None:
        self._bucket_s = bucket_s
        self._count = ceil(window_s / bucket_s)
        self._make = make
        self._buckets: deque[tuple[int, B]] = deque()
        self._first: int | None = None

    def at(self, now_s: float) -> B:
        """The bucket of this instant, made if need be."""
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
        """(buckets ago, bucket), oldest first."""
        index = int(now_s // self._bucket_s)
        self._expire(index)
        return [(index - i, bucket) for i, bucket in self._buckets]

    def span_s(self, now_s: float) -> float:
        """Seconds the live buckets stand for: the window, or less after a start; at least one bucket."""
        if self._first is None:
            return self._bucket_s
        oldest = max(self._first, int(now_s // self._bucket_s) - self._count + 1)
        return max(now_s - oldest * self._bucket_s, self._bucket_s)

    def _expire(self, index: int) -> None:
        while self._buckets and self._buckets[0][0] <= index - self._count:
            self._buckets.popleft()
