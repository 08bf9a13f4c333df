"""Sends the requests of one process open loop: each at its scheduled instant, whatever the server does."""

import asyncio
from collections.abc import Callable, Sequence

from hmas.contracts.outcome import Outcome
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.runner.client import LoadClient, unsent
from hmas_loadgen.traces.row import TraceRow

Scheduled = tuple[int, TraceRow]  # (index in the plan's schedule, row)
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
        self.sent = 0

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def stop(self) -> None:
        self._stopped.set()

    async def run(self, schedule: Sequence[Scheduled]) -> None:
        """Sends the requests of `schedule` at their instants, and returns when every request sent has its record.
        Raises the first exception of a sending task, which would be a programming error."""
        try:
            for index, row in schedule:
                if not await self._wait_until(row.arrival_s):
                    break
                self._launch(index, row)
            await self._drain()
        finally:
            await self._cut_off()
        if self._bug is not None:
            raise self._bug

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
            self._on_record(unsent(index, row, Outcome.INTERNAL, LIMIT_ERROR, self._client.now_s()))
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
        self._on_record(await self._client.send(index, row))

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
        await asyncio.sleep(0)
        tasks = list(self._in_flight)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
