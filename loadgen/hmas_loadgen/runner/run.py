"""`run_load` carries out one load plan, in this process or over several, and returns its result."""

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from hmas.contracts.outcome import Outcome
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.prompts import Corpus, PromptBuilder
from hmas_loadgen.record import RequestRecord, RunProgress
from hmas_loadgen.result import LoadResult
from hmas_loadgen.runner.client import LoadClient, unsent
from hmas_loadgen.runner.fleet import SenderFleet
from hmas_loadgen.runner.openloop import OpenLoop, Scheduled
from hmas_loadgen.runner.shard import start_instant_s
from hmas_loadgen.runner.tally import LOST_ERROR, Tally, invalid_reasons
from hmas_loadgen.scoring import lag_quantiles

PROGRESS_S = 0.5
OPEN_FILES = 65_536

OnProgress = Callable[[RunProgress], None]
OnRecord = Callable[[RequestRecord], None]


async def run_load(
    plan: LoadPlan,
    on_progress: OnProgress | None = None,
    *,
    on_record: OnRecord | None = None,
    corpus: Corpus | None = None,
    stop: asyncio.Event | None = None,
    earlier: Iterable[RequestRecord] = (),
) -> LoadResult:
    """Runs `plan` to its end or until `stop` is set, and returns its result. At a stop, requests in flight are cut off
    and the rest are not sent.

    `on_progress` is called twice a second, `on_record` once per request when it ends. `corpus` supplies labelled
    prompts. `earlier` holds the records of an interrupted run of the same plan: their requests are not sent again, and
    the first of the others is sent at once.
    """
    _raise_file_limit()
    records = _whole(plan, {record.index: record for record in earlier})
    schedule, shift_s = _remaining(plan, records)
    tally = Tally(plan)
    for record in records.values():
        tally.add(record)

    def settle(record: RequestRecord) -> None:
        row = plan.trace.rows[record.index]
        started_s = None if row.call is not None and row.call.after else row.arrival_s
        record = _shifted(record, shift_s, started_s)
        records[record.index] = record
        tally.add(record)
        if on_record is not None:
            on_record(record)

    started_unix_s = time.time() - shift_s
    run = _Run(plan, tally, on_progress, stop or asyncio.Event(), len(records), shift_s)
    if schedule:
        drive = run.alone if plan.processes == 1 else run.spread
        gc.collect()
        gc.freeze()  # a collection over a long trace's rows would stall the schedule for milliseconds
        try:
            await drive(schedule, settle, corpus)
        finally:
            gc.unfreeze()
    return _result(plan, started_unix_s, records, interrupted=run.stop.is_set(), died=run.died)


def _whole(plan: LoadPlan, records: dict[int, RequestRecord]) -> dict[int, RequestRecord]:
    """Leaves out the records of jobs of which a call has none: such a job is sent again as a whole."""
    rows = plan.trace.rows
    broken = {row.call.job for index, row in enumerate(rows) if row.call is not None and index not in records}
    return {i: record for i, record in records.items() if record.job not in broken or not record.job}


def _remaining(plan: LoadPlan, records: dict[int, RequestRecord]) -> tuple[list[Scheduled], float]:
    """Returns the requests without a record, moved in time so that the first is due at 0, and by how many seconds they
    were moved. Without records nothing is moved."""
    left = [(index, row) for index, row in enumerate(plan.trace.rows) if index not in records]
    shift_s = left[0][1].arrival_s if records and left else 0.0
    if not shift_s:
        return left, 0.0
    return [(index, replace(row, arrival_s=row.arrival_s - shift_s)) for index, row in left], shift_s


def _shifted(record: RequestRecord, shift_s: float, scheduled_s: float | None) -> RequestRecord:
    """Moves the record of a resumed run back by `shift_s`, so that its times count from the start of the whole run.
    `scheduled_s`: when it was to be sent by the schedule, None if that depended on others."""
    if not shift_s:
        return record
    first, last = record.first_token_s, record.last_token_s
    return replace(
        record,
        scheduled_s=record.scheduled_s + shift_s if scheduled_s is None else scheduled_s,
        sent_s=record.sent_s + shift_s,
        end_s=record.end_s + shift_s,
        first_token_s=None if first is None else first + shift_s,
        last_token_s=None if last is None else last + shift_s,
        token_times_s=tuple(at + shift_s for at in record.token_times_s),
    )


class _Run:
    """The state of one call of `run_load`: the tally, the stop event, and whether a sender process died."""

    def __init__(
        self,
        plan: LoadPlan,
        tally: Tally,
        on_progress: OnProgress | None,
        stop: asyncio.Event,
        sent_before: int,
        shift_s: float,
    ) -> None:
        # The offered window is counted from the moved start, as the schedule is.
        left_s = max(plan.offered_s - shift_s, 1e-3)
        self._plan = replace(plan, window_s=left_s, warmup_s=0.0) if shift_s else plan
        self._tally = tally
        self._on_progress = on_progress
        self._sent_before = sent_before
        self._shift_s = shift_s
        self._run_id = f"load-{os.urandom(4).hex()}"
        self.stop = stop
        self.died = False

    async def alone(self, schedule: list[Scheduled], settle: OnRecord, corpus: Corpus | None) -> None:
        plan = self._plan
        prompts = PromptBuilder(plan.seed, plan.target.api, plan.trace.block_tokens, corpus)
        start_s = start_instant_s()
        client = LoadClient(plan, prompts, self._run_id, start_s)
        loop = OpenLoop(plan, client, settle)
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(loop, lambda: client.tokens, start_s))
                await loop.run(schedule)
                watch.cancel()
            self._report(loop, client.tokens, start_s)
        finally:
            client.close()

    async def spread(self, schedule: list[Scheduled], settle: OnRecord, corpus: Corpus | None) -> None:
        fleet = SenderFleet(self._plan, corpus, self._run_id, settle)
        try:
            start_s = await fleet.start(schedule)
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch(fleet, lambda: fleet.tokens, start_s))
                await fleet.wait()
                watch.cancel()
            self._report(fleet, fleet.tokens, start_s)
            self.died = any(shard.died for shard in fleet.shards)
        finally:
            fleet.close()

    async def _watch(self, driver: OpenLoop | SenderFleet, tokens: Callable[[], int], start_s: float) -> None:
        """Reports progress twice a second, until `stop` is set; then it stops the driver."""
        while not self.stop.is_set():
            try:
                async with asyncio.timeout(PROGRESS_S):
                    await self.stop.wait()
            except TimeoutError:
                pass
            self._report(driver, tokens(), start_s)
        driver.stop()

    def _report(self, driver: OpenLoop | SenderFleet, tokens: int, start_s: float) -> None:
        if self._on_progress is not None:
            elapsed_s = time.monotonic() - start_s + self._shift_s
            self._on_progress(self._tally.snapshot(elapsed_s, driver.sent + self._sent_before, tokens))


def _result(
    plan: LoadPlan, started_unix_s: float, records: dict[int, RequestRecord], *, interrupted: bool, died: bool
) -> LoadResult:
    if died:
        for index, row in enumerate(plan.trace.rows):
            records.setdefault(index, unsent(index, row, Outcome.INTERNAL, LOST_ERROR, row.arrival_s))
    ordered = tuple(records[index] for index in sorted(records))
    p50_s, p99_s = lag_quantiles(ordered)
    return LoadResult(
        name=plan.name,
        model=plan.target.model,
        offered_s=plan.offered_s,
        warmup_s=plan.warmup_s,
        config=plan.config(),
        started_unix_s=started_unix_s,
        records=ordered,
        lag_p50_s=p50_s,
        lag_p99_s=p99_s,
        reasons=invalid_reasons(ordered, interrupted, p50_s),
    )


def _raise_file_limit() -> None:
    """Raises the limit of open files: each outstanding request holds a socket, and the usual 1024 are too few when the
    server is overloaded."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
