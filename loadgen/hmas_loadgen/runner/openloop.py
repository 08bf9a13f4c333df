"""Sends the requests of one process open loop: each at its scheduled instant, whatever the server does. Jobs start in
the same way, and each later call of theirs is sent when those before it have ended."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas.laws.closed_loop import ClosedLoop
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.record import CUT_OFF, RequestRecord
from hmas_loadgen.runner.client import LoadClient, unsent
from hmas_loadgen.traces.row import TraceRow

Scheduled = tuple[int, TraceRow]  # (index in the plan's schedule, row)
JOB_LOST = "not sent: an earlier call of its job failed"
LIMIT_ERROR = "client in-flight bound"
STOP_CHECK_S = 0.5  # shorter waits are plain sleeps, which cost less but notice a stop only when they end


class OpenLoop:
    """Sends the requests of one sender process and passes their records to `on_record`. After `stop()` nothing more is
    sent, and requests in flight are cut off."""

    def __init__(self, plan: LoadPlan, client: LoadClient, on_record: Callable[[RequestRecord], None]) -> None:
        self._plan = plan
        self._client = client
        self._on_record = on_record
        self._stopped = asyncio.Event()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._bug: BaseException | None = None
        self._jobs: ClosedLoop[tuple[str, int]] = ClosedLoop({})
        self._held: dict[tuple[str, int], Scheduled] = {}  # calls that wait for others of their job
        self._closed = False
        self.sent = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, schedule: Sequence[Scheduled]) -> None:
        """Sends the requests of `schedule` at their instants, and returns when every request sent, and every call of a
        job of which one was sent, has its record. `schedule` has whole jobs. Raises the first exception of a sending
        task, which would be a programming error."""
        self._hold(schedule)
        try:
            for index, row in schedule:
                if row.call is not None and row.call.after:
                    continue
                if not await self._wait_until(row.arrival_s):
                    break
                self._launch(index, row)
            await self._drain()
        finally:
            await self._cut_off()
        if self._bug is not None:
            raise self._bug

    def _hold(self, schedule: Sequence[Scheduled]) -> None:
        waits = {}
        for index, row in schedule:
            call = row.call
            if call is not None:
                waits[call.job, call.number] = [(call.job, number) for number in call.after]
                if call.after:
                    self._held[call.job, call.number] = index, row
        self._jobs = ClosedLoop(waits)

    async def _wait_until(self, at_s: float) -> bool:
        """Waits until `at_s`, and returns True, or False if the loop was stopped. Even if it is late it yields to the
        event loop once, so that streams are read."""
        left_s = at_s - self._client.now_s()
        if left_s > STOP_CHECK_S:
            await self._sleep_or_stop(left_s)
        else:
            await asyncio.sleep(max(0.0, left_s))
        return not self._stopped.is_set()

    async def _sleep_or_stop(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    def _launch(self, index: int, row: TraceRow) -> None:
        self.sent += 1
        if len(self._in_flight) >= self._plan.max_in_flight:
            self._settle(row, unsent(index, row, Outcome.INTERNAL, LIMIT_ERROR, self._client.now_s()))
            return
        task = asyncio.create_task(self._one(index, row))
        self._in_flight.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._in_flight.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._bug = self._bug or task.exception()
            self.stop()

    async def _one(self, index: int, row: TraceRow) -> None:
        if row.call is not None and row.call.after:
            try:
                await asyncio.sleep(max(0.0, row.arrival_s - self._client.now_s()))
            except asyncio.CancelledError:
                self._settle(row, unsent(index, row, Outcome.CANCELLED, CUT_OFF, self._client.now_s()))
                return
        self._settle(row, await self._client.send(index, row))

    def _settle(self, row: TraceRow, record: RequestRecord) -> None:
        """Passes a record on. The end of a job's call lets others of it go; none goes any more if it failed."""
        self._on_record(record)
        if row.call is None:
            return
        key, now_s = (row.call.job, row.call.number), self._client.now_s()
        if record.outcome is Outcome.FINISHED and not self._closed:
            for free in self._jobs.ended(key):
                index, later = self._held.pop(free)
                assert later.call is not None
                self._launch(index, replace(later, arrival_s=now_s + later.call.outside_s))
            return
        error = CUT_OFF if record.error == CUT_OFF or self._closed else JOB_LOST
        for lost in self._jobs.lost(key):
            index, later = self._held.pop(lost)
            self._on_record(unsent(index, later, Outcome.CANCELLED, error, now_s))

    async def _drain(self) -> None:
        """Waits until no request is in flight, the drain time is over or the loop is stopped."""
        deadline_s = self._plan.offered_s + self._plan.drain_s
        while self._in_flight and not self._stopped.is_set():
            left_s = deadline_s - self._client.now_s()
            if left_s <= 0:
                break
            await asyncio.wait(self._in_flight, timeout=min(left_s, 0.25))

    async def _cut_off(self) -> None:
        """Cancels all requests in flight. Each still gets its record, even if its task had not begun."""
        self._closed = True
        await asyncio.sleep(0)
        tasks = list(self._in_flight)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
