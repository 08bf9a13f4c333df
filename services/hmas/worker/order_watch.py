"""Bounds the time that an order of a package may take, which runs on the worker's event loop."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

CALL_S = 0.5  # of real time; gateways take a worker that is silent for 2 s as gone
WINDOW_S = 5.0
MOST_SHARE = 0.5  # of real time over a window


class OrderTooSlow(Exception):
    """Raised inside a call that takes too long, or at the end of one after which there were too many."""


class OrderWatch:
    """Makes calls of orders, and interrupts one after `CALL_S`. Raises OrderTooSlow then, and if all calls of a window
    together took more than `MOST_SHARE` of it.

    It interrupts Python code by a signal, also an endless loop, but no extension module that does not return. Calls
    from other threads, which only look at copies of the queue, are not bounded.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._inside = False
        self._began_s = clock()
        self._spent_s = 0.0
        signal.signal(signal.SIGALRM, self._interrupt)

    def __call__(self, call: Callable[..., Any], *arguments: object) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return call(*arguments)
        began_s = self._clock()
        signal.setitimer(signal.ITIMER_REAL, CALL_S, CALL_S)  # again, should the call catch it
        self._inside = True
        try:
            return call(*arguments)
        finally:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            self._count(began_s)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._inside:
            raise OrderTooSlow(f"a call took more than {CALL_S:g} s")

    def _count(self, began_s: float) -> None:
        now_s = self._clock()
        self._spent_s += now_s - began_s
        window_s = now_s - self._began_s
        if window_s < WINDOW_S:
            return
        share = self._spent_s / window_s
        self._began_s, self._spent_s = now_s, 0.0
        if share > MOST_SHARE:
            raise OrderTooSlow(f"its calls took {share:.0%} of {window_s:.0f} s")
