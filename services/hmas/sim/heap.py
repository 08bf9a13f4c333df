"""Virtual time: one heap of calls to be made."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """Calls ordered by (time, sequence number)."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._seq = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time_s: float, call: Callable[..., object], *args: Any) -> None:
        """Schedules a call. ValueError if `time_s` is past."""
        if time_s < self.now_s:
            raise ValueError(f"an event at {time_s} s cannot be scheduled at {self.now_s} s")
        self._seq += 1
        heappush(self._heap, (time_s, self._seq, call, args))

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Schedules a call `delay_s` from now."""
        self.at(self.now_s + delay_s, call, *args)

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Makes the calls up to and including `until_s`, until none is left, or until `stop()` after a call."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, call, args = heappop(heap)
            call(*args)
            if stop():
                return
