"""Virtual time: one heap of calls that are to be made at given instants."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class EventHeap:
    """Makes scheduled calls in order of time, and in order of scheduling within one instant. `now_s` is the virtual
    time in s."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._seq = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time_s: float, call: Callable[..., object], *args: Any) -> None:
        """Schedules `call(*args)` at `time_s`. Raises ValueError if that is before `now_s`."""
        if time_s < self.now_s:
            raise ValueError(f"a call at {time_s} s cannot be scheduled: virtual time is already {self.now_s} s")
        self._seq += 1
        heappush(self._heap, (time_s, self._seq, call, args))

    def after(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Schedules `call(*args)` `delay_s` seconds from now."""
        self.at(self.now_s + delay_s, call, *args)

    def run(self, until_s: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Makes the scheduled calls until the next one is later than `until_s`, none is left, or `stop()` is true after
        a call."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, call, args = heappop(heap)
            call(*args)
            if stop():
                return
