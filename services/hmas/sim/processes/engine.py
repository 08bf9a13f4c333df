"""One engine core, stepped by events of the heap in virtual time."""

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from math import inf
from typing import Protocol

from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.core.step import StepResult
from hmas.sim.processes.heap import EventHeap


class EngineMode(Enum):
    IDLE = 0
    STEPPING = 1  # a step is in flight
    COASTING = 2  # only decoding happens until the next wake-up; the core's state lags behind until it is needed


class StepListener(Protocol):
    """Called at the end of each step in which some request got its first or its last token."""

    def __call__(self, engine: "SimEngine", result: StepResult) -> None: ...


class KvReader(Protocol):
    """Called with the requests whose prompts the engine is to read from another one, and the tokens of each."""

    def __call__(self, tokens: Mapping[str, int]) -> None: ...


class SimEngine:
    """Drives an `EngineCore` in virtual time and skips quiet steps, in which no request comes, starts or ends.

    Skipping gives the same times as taking every step: a call that arrives while quiet steps are skipped falls into
    the step that would have been in flight, so that step is begun, as of its own start, before the call takes effect.
    With `skip` false every step is taken; a test compares the two. Every call must come from an event of the heap.
    """

    def __init__(
        self,
        heap: EventHeap,
        core: EngineCore,
        name: str,
        listener: StepListener,
        skip: bool = True,
        reader: KvReader | None = None,
    ) -> None:
        self.core = core
        self._profile = core.profile
        self.name = name
        self.steps = 0
        self.busy_s = 0.0
        self._heap = heap
        self._listener = listener
        self._reader = reader
        self._skip = skip
        self._mode = EngineMode.IDLE
        self._core_s = 0.0  # the instant the core's state belongs to: the end of its last step
        self._wakes = 0  # only the latest wake-up counts
        self._frozen = self._held = False  # held: a step ended while the engine was frozen
        self._paused = False

    def add(self, request: EngineRequest) -> AddResult:
        self._interrupt()
        answer = self.core.add(request)
        self._start()
        return answer

    def abort(self, request_id: str) -> bool:
        self._interrupt()
        found = self.core.abort(request_id)
        self._start()
        return found

    def landed(self, request_id: str) -> None:
        """Lets a request go on whose prompt was read."""
        self._interrupt()
        self.core.handed.landed(request_id)
        self._start()

    def give_back(self, request_id: str) -> None:
        """Frees a prompt that was kept for another engine, if it still is."""
        self._interrupt()
        self.core.handed.give_back(request_id)
        self._start()

    def set_limits(self, n_run: int | None, b_token: int | None) -> None:
        self._interrupt()
        self.core.set_limits(n_run, b_token)
        self._start()

    def slow(self, factor: float) -> None:
        """Makes every further step take `factor` times as long as the profile says; 1 ends it. It may be called while
        the engine is frozen."""
        if not self._frozen:
            self._interrupt()
        self.core.profile = replace(self._profile, cost=self._profile.cost.times(factor))
        if not self._frozen:
            self._start()

    def pause(self) -> None:
        """Begins no step any more until `resume`; the one in flight ends."""
        self._interrupt()
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._start()

    @property
    def idle(self) -> bool:
        """Whether no step is in flight."""
        return self._mode is EngineMode.IDLE

    def freeze(self) -> None:
        """Stops the engine in the step that is in flight. Until `thaw`, no other call may be made."""
        self._interrupt()
        self._frozen = True

    def thaw(self) -> None:
        self._frozen = False
        if self._held:
            self._held = False
            self._step_ended()

    def catch_up(self) -> None:
        """Brings the core's counters and progress up to the present. Call it before reading them."""
        if self._mode is EngineMode.COASTING:
            self._forward(self._heap.now_s)

    def _forward(self, until_s: float) -> None:
        jump = self.core.fast_forward(self._core_s, until_s)
        self.steps += jump.steps
        self.busy_s += jump.end_s - self._core_s
        self._core_s = jump.end_s

    def _interrupt(self) -> None:
        """Prepares for a change of the core: the step now in flight began before that change."""
        if self._mode is EngineMode.COASTING:
            self._forward(self._heap.now_s)
            self._step()

    def _start(self) -> None:
        if self._mode is EngineMode.IDLE and not self._paused:
            self._core_s = self._heap.now_s
            self._go()

    def _go(self) -> None:
        """Goes on from a step's end, unless it is paused: schedules the end of a quiet stretch, or begins a step."""
        if self._paused:
            self._mode = EngineMode.IDLE
            return
        quiet_s = self.core.quiet_until(self._core_s) if self._skip else self._core_s
        if quiet_s > self._core_s:
            self._mode = EngineMode.COASTING
            self._wakes += 1
            self._heap.at(quiet_s, self._wake, self._wakes)
        else:
            self._step()

    def _wake(self, wake: int) -> None:
        if self._mode is EngineMode.COASTING and wake == self._wakes:
            self._forward(inf)
            self._step()

    def _step(self) -> None:
        plan = self.core.step_begin(self._core_s)
        if self._reader is not None and self.core.handed.to_read:
            self._heap.after(0.0, self._read)
        if plan is None:
            self._mode = EngineMode.IDLE
            return
        self._mode = EngineMode.STEPPING
        self.steps += 1
        self.busy_s += plan.duration_s
        self._heap.at(self._core_s + plan.duration_s, self._step_ended)

    def _read(self) -> None:
        tokens, self.core.handed.to_read = self.core.handed.to_read, {}
        if self._reader is not None:
            self._reader(tokens)

    def _step_ended(self) -> None:
        if self._frozen:
            self._held = True
            return
        self._core_s = self._heap.now_s
        result = self.core.step_end()
        if result.first or result.finished:
            self._listener(self, result)
        self._go()
