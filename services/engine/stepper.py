"""Shell: runs the engine core in real time and measures how far real time falls behind it."""

from asyncio import AbstractEventLoop, TimerHandle
from time import monotonic
from typing import Protocol

from services.engine.core import EngineCore
from services.engine.histogram import Window
from services.engine.sequence import AddResult, EngineRequest
from services.engine.telemetry import EngineTelemetry

LAG_WINDOW = 100_000


class TokenSink(Protocol):
    """Where a request's tokens go. Called from the step loop: quick, and never awaiting."""

    def scheduled(self, now_s: float) -> None: ...
    def preempted(self, now_s: float) -> None: ...
    def token(self, now_s: float) -> None: ...


class Stepper:
    """Drives one core. A step begins where the one before was due, not where it was noticed, so lag never adds up.

    `lag` is the time from a step's due end to the last of its tokens written. Times are `time.monotonic`.
    """

    def __init__(self, core: EngineCore, loop: AbstractEventLoop, telemetry: EngineTelemetry) -> None:
        self.core = core
        self.lag = Window(LAG_WINDOW)
        self._loop = loop
        self._telemetry = telemetry
        self._sinks: dict[str, TokenSink] = {}
        self._timer: TimerHandle | None = None
        self._due_s = 0.0
        self._last_end_s = 0.0
        self._paused_s: dict[str, float] = {}  # preempted requests, until they resume

    def submit(self, request: EngineRequest, sink: TokenSink) -> AddResult:
        result = self.core.add(request)
        if result is AddResult.ACCEPTED:
            self._sinks[request.id] = sink
            if self._timer is None:
                self._last_end_s = monotonic()
                self._begin(self._last_end_s)
        return result

    def abort(self, request_id: str) -> None:
        """Frees the request's memory at once; it gets no token any more."""
        if self.core.abort(request_id):
            del self._sinks[request_id]
            self._paused_s.pop(request_id, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, start_s: float) -> None:
        plan = self.core.step_begin(start_s)
        if plan is None:
            self._timer = None
            return
        for request_id in plan.admitted:
            self._sinks[request_id].scheduled(start_s)
        for request_id in plan.preempted:
            self._sinks[request_id].preempted(start_s)
            self._paused_s[request_id] = start_s
        self._telemetry.step(plan.prefill_tokens + plan.decode_seqs)
        self._due_s = start_s + plan.duration_s
        self._timer = self._loop.call_later(max(0.0, self._due_s - monotonic()), self._end)

    def _end(self) -> None:
        result = self.core.step_end()
        due_s, now_s, sinks = self._due_s, monotonic(), self._sinks
        for request_id in reversed(result.tokens):  # newest first: a first token does not wait for the batch's rest
            sinks[request_id].token(now_s)
        for request_id in result.finished:
            del sinks[request_id]
        lag_s = max(0.0, monotonic() - due_s)
        self.lag.observe(lag_s)
        self._telemetry.tokens(due_s - self._last_end_s, len(result.tokens) - len(result.first), lag_s)
        for request_id in result.first:
            paused_s = self._paused_s.pop(request_id, None)
            if paused_s is not None:
                self._telemetry.resumed(due_s - paused_s)
        self._last_end_s = due_s
        self._begin(due_s)
