"""Shell: runs the engine core in real time and measures how far its steps lag behind their due ends."""

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from hmas.engine.core import EngineCore
from hmas.engine.core.kv_cache import CacheEvent
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.core.sleep_loss import lose_kv
from hmas.engine.histogram import RecentValues
from hmas.engine.metrics import EngineTelemetry

LAG_WINDOW = 100_000
# Tokens written before the event loop gets a turn, so that a new request's arrival time is taken without delay.
SLICE = 4


class TokenSink(Protocol):
    """The receiver of one request's tokens. The step loop calls it, so its methods must be quick and never await."""

    def scheduled(self, now_s: float) -> None: ...
    def cached(self, tokens: int) -> None: ...
    def preempted(self, now_s: float) -> None: ...
    def token(self, now_s: float) -> None: ...
    def give_up(self) -> None: ...


def _unread(request_id: str, tokens: int) -> None:
    raise RuntimeError(f"nobody reads the KV of the request {request_id}: set Stepper.read")


@dataclass(slots=True)
class Writing:
    """The tokens of an ended step that are not yet written, by request id.

    `gap_s` is the time since the end of the step before, `decoded` the number of tokens that are not first tokens.
    """

    tokens: deque[str]
    finished: list[str]
    due_s: float
    gap_s: float
    decoded: int


class Stepper:
    """Drives one engine core in real time; times are of `time.monotonic`, in seconds.

    A step begins at the due end of the step before, not when that end was noticed, so that lag never accumulates. The
    tokens of a step are written while the next one runs. `lag` records the time from a step's due end until its last
    token was written. `kv_events` gets what happened to the KV cache after each step.
    """

    def __init__(
        self,
        core: EngineCore,
        loop: AbstractEventLoop,
        telemetry: EngineTelemetry,
        kv_events: Callable[[list[CacheEvent]], None] | None = None,
    ) -> None:
        self.core = core
        self.read: Callable[[str, int], None] = _unread  # begins to read a request's KV, so many tokens
        self._kv_events = kv_events
        if kv_events is not None:
            core.kv.journal = []
        self.lag = RecentValues(LAG_WINDOW)
        self._loop = loop
        self._telemetry = telemetry
        self._sinks: dict[str, TokenSink] = {}
        self._writing: Writing | None = None
        self._timer: TimerHandle | None = None
        self._due_s = 0.0
        self._last_end_s = 0.0
        self._paused_s: dict[str, float] = {}  # when each preempted request was preempted, until it resumes
        self.paused = self._stopped = False  # paused: no request begins; stopped: nor is a step begun
        self._idle: list[Future[None]] = []

    def submit(self, request: EngineRequest, sink: TokenSink) -> AddResult:
        result = self.core.add(request)
        if result is AddResult.ACCEPTED:
            self._sinks[request.id] = sink
            self._wake()
        return result

    def abort(self, request_id: str) -> None:
        """Ends a request: its KV memory is freed at once and it gets no further token."""
        if self.core.abort(request_id):
            del self._sinks[request_id]
            self._paused_s.pop(request_id, None)

    def landed(self, request_id: str) -> None:
        """Records that the KV of a request has come, if it still waits for it."""
        if request_id in self.core.handed.reading:
            self.core.handed.landed(request_id)
            self._wake()

    def give_back(self, request_id: str) -> bool:
        """Frees the KV that a request left for another engine; returns whether there was any."""
        found = self.core.handed.give_back(request_id)
        self._wake()
        return found

    def _wake(self) -> None:
        if self._timer is None:
            self._last_end_s = monotonic()
            self._begin(self._last_end_s)

    def reset_cache(self) -> bool:
        """Drops what the prefix cache holds, unless something runs; returns whether it did."""
        done = self.core.kv.reset()
        self._publish()
        return done

    # --- sleep ---

    def pause(self, *, running: bool) -> None:
        """Begins no request any more until `resume`, and no step either, unless what is `running` may end."""
        self.paused, self._stopped = True, not running
        self.core.set_limits(n_run=0)

    def resume(self) -> None:
        self.paused = self._stopped = False
        self.core.set_limits()
        self._wake()

    async def idle(self) -> None:
        """Waits until no step is in flight."""
        if self._timer is not None:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    def give_up_all(self) -> None:
        """Ends all requests early, and tells their clients so."""
        for request_id, sink in list(self._sinks.items()):
            if self.core.abort(request_id):  # otherwise its last tokens are being written
                del self._sinks[request_id]
                self._paused_s.pop(request_id, None)
                sink.give_up()

    def drop_cache(self) -> None:
        """Drops all that the KV cache holds; what runs is computed anew. No step may be in flight."""
        for request_id in lose_kv(self.core):
            self._paused_s.setdefault(request_id, self._last_end_s)
        self.reset_cache()

    def _publish(self) -> None:
        journal = self.core.kv.journal
        if journal and self._kv_events is not None:
            self._kv_events(journal)
            self.core.kv.journal = []

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, start_s: float) -> None:
        plan = None if self._stopped else self.core.step_begin(start_s)
        if self.core.handed.to_read:
            wanted, self.core.handed.to_read = self.core.handed.to_read, {}
            for request_id, tokens in wanted.items():
                self.read(request_id, tokens)
        if plan is None:
            self._timer = None
            waiting, self._idle = self._idle, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
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
        for request_id, cached in zip(result.first, result.cached, strict=True):
            sink = self._sinks.get(request_id)
            if sink is not None:
                sink.cached(cached)
            paused_s = self._paused_s.pop(request_id, None)
            if paused_s is not None:
                self._telemetry.resumed(due_s - paused_s)
        # First tokens are at the end of `tokens` and are written first, so that they do not wait for all the others.
        tokens = deque(reversed(result.tokens))
        decoded = len(tokens) - len(result.first)
        self._writing = Writing(tokens, result.finished, due_s, due_s - self._last_end_s, decoded)
        self._last_end_s = due_s
        self._begin(due_s)
        self._publish()
        self._write(SLICE)

    def _write(self, most: int | None) -> None:
        """Writes up to `most` tokens of the ended step now and schedules the rest; None writes all of them now."""
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
        """Writes the next slice, unless the end of the next step has written the rest already."""
        if self._writing is writing:
            self._write(SLICE)
