"""Shell: runs the engine core in real time and measures how far real time falls behind it."""

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.histogram import RecentValues
from hmas.engine.metrics import EngineTelemetry

LAG_WINDOW = 100_000
SLICE = 4  # tokens written before the loop may look at its sockets: a request is stamped when it comes, not after all


class TokenSink(Protocol):
    """Where a request's tokens go. Called from the step loop: quick, and never awaiting."""

    def scheduled(self, now_s: float) -> None: ...
    def preempted(self, now_s: float) -> None: ...
    def token(self, now_s: float) -> None: ...


@dataclass(slots=True)
class Writing:
    """Tokens of an ended step on their way out. `gap_s`: since the step before; `decoded`: tokens but first ones."""

    tokens: deque[str]
    finished: list[str]
    due_s: float
    gap_s: float
    decoded: int


class Stepper:
    """Drives one core. A step begins where the one before was due, not where it was noticed, so lag never adds up; its
    tokens are written while the next one runs.

    `lag` is the time from a step's due end to the last of its tokens written. Times are `time.monotonic`.
    """

    def __init__(self, core: EngineCore, loop: AbstractEventLoop, telemetry: EngineTelemetry) -> None:
        self.core = core
        self.lag = RecentValues(LAG_WINDOW)
        self._loop = loop
        self._telemetry = telemetry
        self._sinks: dict[str, TokenSink] = {}
        self._writing: Writing | None = None
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
        self._write(None)
        result = self.core.step_end()
        due_s = self._due_s
        for request_id in result.first:
            paused_s = self._paused_s.pop(request_id, None)
            if paused_s is not None:
                self._telemetry.resumed(due_s - paused_s)
        # Newest first: a first token does not wait for the batch's rest.
        tokens = deque(reversed(result.tokens))
        decoded = len(tokens) - len(result.first)
        self._writing = Writing(tokens, result.finished, due_s, due_s - self._last_end_s, decoded)
        self._last_end_s = due_s
        self._begin(due_s)
        self._write(SLICE)

    def _write(self, most: int | None) -> None:
        """Hands out tokens of the step that ended, `most` of them now and the rest soon; None: all now."""
        writing = self._writing
        if writing is None:
            return
        tokens, sinks = writing.tokens, self._sinks
        for _ in range(len(tokens) if most is None else min(most, len(tokens))):
            sink = sinks.get(tokens.popleft())
            if sink is not None:  # not aborted meanwhile
                sink.token(monotonic())
        if tokens:
            self._loop.call_soon(self._write_on, writing)
            return
        self._writing = None
        for request_id in writing.finished:
            sinks.pop(request_id, None)
        lag_s = max(0.0, monotonic() - writing.due_s)
        self.lag.observe(lag_s)
        self._telemetry.tokens(writing.gap_s, writing.decoded, lag_s)

    def _write_on(self, writing: Writing) -> None:
        """The next slice, unless the next step's end has written it already."""
        if self._writing is writing:
            self._write(SLICE)
