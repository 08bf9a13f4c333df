"""Spreads one run over several sender processes: divides the schedule, collects their reports, and notices if one
dies."""

import asyncio
import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.prompts import Corpus
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.runner.openloop import Scheduled
from hmas_loadgen.runner.shard import ShardReport, shard_main, start_instant_s, watch

READY_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 10.0


class Shard:
    """One sender process as its parent sees it: its pipe, its counters, and whether it is ready, done or died."""

    def __init__(self, process: BaseProcess, pipe: Connection, on_record: Callable[[RequestRecord], None]) -> None:
        self.process = process
        self.pipe = pipe
        self.sent = 0
        self.tokens = 0
        self.died = False
        self.ready = asyncio.Event()
        self.done = asyncio.Event()
        self._on_record = on_record

    def readable(self) -> None:
        """Reads one report from the pipe. The event loop calls it when a report, or the end of the pipe, is there."""
        try:
            report: ShardReport = self.pipe.recv()
        except (EOFError, OSError):
            self.died = True
            self._close()
            return
        self.ready.set()
        self.sent, self.tokens = report.sent, report.tokens
        for record in report.records:
            self._on_record(record)
        if report.last:
            self._close()

    def _close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pipe.fileno())
        self.ready.set()
        self.done.set()


def dealt(schedule: Sequence[Scheduled], count: int) -> list[list[Scheduled]]:
    """Deals requests out to `count` processes in turn; all calls of a job go to one."""
    parts: list[list[Scheduled]] = [[] for _ in range(count)]
    turn, job = -1, ""
    for index, row in schedule:
        if row.call is None or row.call.job != job:
            turn, job = turn + 1, row.call.job if row.call is not None else ""
        parts[turn % count].append((index, row))
    return parts


class SenderFleet:
    """Runs a plan in `plan.processes` sender processes. Each balances over the base URLs by its own outstanding
    requests. `on_record` is called for each request that has ended."""

    def __init__(
        self, plan: LoadPlan, corpus: Corpus | None, run_id: str, on_record: Callable[[RequestRecord], None]
    ) -> None:
        self._plan = plan
        self._corpus = corpus
        self._run_id = run_id
        self._on_record = on_record
        self.shards: list[Shard] = []

    @property
    def sent(self) -> int:
        return sum(shard.sent for shard in self.shards)

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    async def start(self, schedule: Sequence[Scheduled]) -> float:
        """Starts all processes, waits until they are ready, and returns their common start, an instant of the monotonic
        clock in seconds. Raises TimeoutError if one is not ready within 60 s."""
        count = self._plan.processes
        for part in dealt(schedule, count):
            self.shards.append(self._spawn(part))
        async with asyncio.timeout(READY_TIMEOUT_S):
            for shard in self.shards:
                await shard.ready.wait()
        start_s = start_instant_s()
        for shard in self.shards:
            self._tell(shard, start_s)
        return start_s

    def _spawn(self, part: Sequence[Scheduled]) -> Shard:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        # `part` carries the process's rows. The plan sent with it keeps a single row, because a plan needs at least
        # one.
        plan = replace(
            self._plan,
            trace=replace(self._plan.trace, rows=self._plan.trace.rows[:1]),
            window_s=self._plan.offered_s,
            max_tokens=self._plan.generous_max_tokens,
            max_in_flight=-(-self._plan.max_in_flight // self._plan.processes),
        )
        args = (plan, part, self._corpus, self._run_id, theirs)
        process = context.Process(target=shard_main, args=args, daemon=True)
        process.start()
        theirs.close()
        shard = Shard(process, ours, self._on_record)
        watch(ours, shard.readable)
        return shard

    def _tell(self, shard: Shard, message: object) -> None:
        try:
            shard.pipe.send(message)
        except OSError:
            shard.died = True

    def stop(self) -> None:
        for shard in self.shards:
            if not shard.done.is_set():
                self._tell(shard, None)

    async def wait(self) -> None:
        for shard in self.shards:
            await shard.done.wait()

    def close(self) -> None:
        """Ends all sender processes and waits until they are gone."""
        for shard in self.shards:
            if not shard.done.is_set():
                asyncio.get_running_loop().remove_reader(shard.pipe.fileno())
                shard.process.terminate()
            shard.pipe.close()
            shard.process.join(JOIN_TIMEOUT_S)
            if shard.process.is_alive():
                shard.process.kill()
                shard.process.join()
