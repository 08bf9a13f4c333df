"""A gate before NIXL's agent: of all transfers that wait, the chunk of the one that is due first is posted next.

    NIXL's agent        what vLLM calls         here
    make_prepped_xfer   once a read             cuts it into chunks and posts none
    transfer            once                    has it wait at the gate
    check_xfer_state    at each step            PROC until the last chunk has landed
    release_xfer_handle when it has ended       raises while a chunk of it is on its way, as vLLM expects

The notification, by which the other engine frees its blocks, leaves with the last chunk, when all others have landed.
Transfers that are past their due time come last, in its order: they cost the others nothing, and end all the same.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from logging import getLogger
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np

log = getLogger("vllm.hmas")
POLL_S = 0.0005  # between two looks at the chunks on their way
IDLE_S = 0.05


class GatedTransfer:
    """A transfer as vLLM sees it, by an opaque handle: chunks that are posted one after the other. Instants are those
    of `time.monotonic`, in s; `due_s` is infinite where nothing is known."""

    def __init__(
        self, operation: tuple[str, Any, Any], chunks: Sequence[Any], notification: bytes, due_s: float
    ) -> None:
        self.operation, self.chunks, self.notification, self.due_s = operation, chunks, notification, due_s
        self.asked_s = time.monotonic()
        self.first_s = self.last_s = inf  # when the first chunk was posted, and the last one landed
        self.posted = self.landed = 0
        self.state, self.released = "PROC", False

    @property
    def flying(self) -> int:
        """How many chunks of it are on their way."""
        return self.posted - self.landed


class Gate:
    """Posts chunks, of which `window` are on their way at a time, on a thread of its own unless `start` is false."""

    def __init__(self, agent: Any, window: int, *, start: bool = True) -> None:
        self._agent, self._window = agent, window
        self._timely: list[tuple[float, int, GatedTransfer]] = []
        self._late: list[tuple[float, int, GatedTransfer]] = []
        self._flying: list[tuple[Any, GatedTransfer]] = []
        self._numbers = count()
        self._lock, self._wake = threading.Lock(), threading.Event()
        if start:
            threading.Thread(target=self._run, daemon=True, name="hmas-gate").start()

    def submit(self, transfer: GatedTransfer) -> None:
        with self._lock:
            heappush(self._timely, (transfer.due_s, next(self._numbers), transfer))
        self._wake.set()

    def _run(self) -> None:
        while True:
            if not self.step(time.monotonic()):
                if self._flying:
                    time.sleep(POLL_S)
                else:
                    self._wake.wait(IDLE_S)
                    self._wake.clear()

    def step(self, now_s: float) -> bool:
        """Takes what has landed and posts what may go. Returns whether there was anything of either."""
        with self._lock:
            landed = self._land(now_s)
            return self._post(now_s) or landed

    def _land(self, now_s: float) -> bool:
        states = [(handle, transfer, self._state(handle)) for handle, transfer in self._flying]
        self._flying = [(handle, transfer) for handle, transfer, state in states if state == "PROC"]
        for handle, transfer, state in states:
            if state == "PROC":
                continue
            transfer.landed += 1
            with suppress(Exception):  # a chunk that has ended holds nothing
                self._agent.release_xfer_handle(handle)
            if state != "DONE":
                transfer.state = "ERR"
            elif transfer.landed == len(transfer.chunks):
                transfer.state, transfer.last_s = "DONE", now_s
        return len(self._flying) < len(states)

    def _post(self, now_s: float) -> bool:
        while self._timely and self._timely[0][0] < now_s:
            heappush(self._late, heappop(self._timely))
        posted = False
        for waiting in (self._timely, self._late):
            ending = []
            while waiting and len(self._flying) < self._window:
                transfer = waiting[0][2]
                if transfer.state != "PROC" or transfer.released or transfer.posted == len(transfer.chunks):
                    heappop(waiting)
                elif transfer.flying and transfer.posted == len(transfer.chunks) - 1:
                    ending.append(heappop(waiting))  # the notification must not arrive before what it tells of
                else:
                    posted = self._post_chunk(transfer, now_s) or posted
            for each in ending:
                heappush(waiting, each)
        return posted

    def _post_chunk(self, transfer: GatedTransfer, now_s: float) -> bool:
        kind, here, there = transfer.operation
        ours, theirs = transfer.chunks[transfer.posted]
        told = transfer.notification if transfer.posted == len(transfer.chunks) - 1 else b""
        try:
            handle = self._agent.make_prepped_xfer(kind, here, ours, there, theirs, notif_msg=told)
            self._agent.transfer(handle)
        except Exception:
            log.exception("a chunk could not be posted")
            transfer.state = "ERR"
            return False
        transfer.first_s = min(transfer.first_s, now_s)
        transfer.posted += 1
        self._flying.append((handle, transfer))
        return True

    def _state(self, handle: Any) -> str:
        try:
            return str(self._agent.check_xfer_state(handle))
        except Exception:
            log.exception("a chunk is lost")
            return "ERR"


class GatedAgent:
    """NIXL's agent, whose transfers pass a gate. `descriptors` of a chunk; `size` of each in bytes; `due` gives the due
    time of the transfer that ends with a notification."""

    def __init__(self, agent: Any, gate: Gate, descriptors: int, size: int, due: Callable[[bytes], float]) -> None:
        self._agent, self._gate, self._descriptors, self._size, self._due = agent, gate, descriptors, size, due

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)

    def make_prepped_xfer(
        self, kind: str, here: Any, ours: Any, there: Any, theirs: Any, notif_msg: bytes = b"", **more: Any
    ) -> Any:
        ours, theirs = np.asarray(ours), np.asarray(theirs)
        if more or len(ours) == 0:
            return self._agent.make_prepped_xfer(kind, here, ours, there, theirs, notif_msg=notif_msg, **more)
        starts = range(0, len(ours), self._descriptors)
        chunks = [(ours[i : i + self._descriptors], theirs[i : i + self._descriptors]) for i in starts]
        return GatedTransfer((kind, here, there), chunks, notif_msg, self._due(notif_msg))

    def transfer(self, handle: Any, *args: Any) -> Any:
        if not isinstance(handle, GatedTransfer):
            return self._agent.transfer(handle, *args)
        self._gate.submit(handle)
        return "PROC"

    def check_xfer_state(self, handle: Any) -> Any:
        return handle.state if isinstance(handle, GatedTransfer) else self._agent.check_xfer_state(handle)

    def get_xfer_telemetry(self, handle: Any) -> Any:
        if not isinstance(handle, GatedTransfer):
            return self._agent.get_xfer_telemetry(handle)
        descriptors = sum(len(ours) for ours, _ in handle.chunks)
        return SimpleNamespace(
            xferDuration=_us(handle.last_s - handle.asked_s), postDuration=_us(handle.first_s - handle.asked_s),
            totalBytes=descriptors * self._size, descCount=descriptors,
        )  # fmt: skip

    def release_xfer_handle(self, handle: Any) -> None:
        """Raises RuntimeError while a chunk is on its way; vLLM asks again."""
        if not isinstance(handle, GatedTransfer):
            self._agent.release_xfer_handle(handle)
            return
        handle.released = True  # nothing more of it is posted
        if handle.flying:
            raise RuntimeError(f"{handle.flying} chunks are still on their way")


def _us(seconds: float) -> int:
    return int(1e6 * seconds)
