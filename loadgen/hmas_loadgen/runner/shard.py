"""A sender process: sends its share of the schedule in its own event loop, and reports records to its parent in batches
over a pipe."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from hmas.event_loop import run_loop
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.prompts import Corpus, PromptBuilder
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.runner.client import LoadClient
from hmas_loadgen.runner.openloop import OpenLoop, Scheduled

REPORT_S = 0.5


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A message of a sender process to its parent: records since the last report, and its counts of requests sent and
    token events received. `last` marks the final report."""

    records: tuple[RequestRecord, ...]
    sent: int
    tokens: int
    last: bool = False


def shard_main(
    plan: LoadPlan, schedule: Sequence[Scheduled], corpus: Corpus | None, run_id: str, pipe: Connection
) -> None:
    """Entry point of a sender process. Over `pipe` it sends ShardReports and receives first the start instant, and
    later perhaps a stop.

    The start is an instant of CLOCK_MONOTONIC, which all processes of one machine share.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    gc.collect()
    gc.freeze()
    pipe.send(ShardReport((), 0, 0))  # ready
    start_s: float | None = pipe.recv()
    if start_s is None:
        return
    try:
        run_loop(_run(plan, schedule, corpus, run_id, start_s, pipe))
    except BrokenPipeError:
        pass  # the parent died; the records that it had received are on disk


async def _run(
    plan: LoadPlan,
    schedule: Sequence[Scheduled],
    corpus: Corpus | None,
    run_id: str,
    start_s: float,
    pipe: Connection,
) -> None:
    batch: list[RequestRecord] = []
    prompts = PromptBuilder(plan.seed, plan.target.api, plan.trace.block_tokens, corpus)
    client = LoadClient(plan, prompts, run_id, start_s)
    loop = OpenLoop(plan, client, batch.append)

    def stop() -> None:
        """Stops sending: the parent sent a message, which can only mean stop, or died."""
        asyncio.get_running_loop().remove_reader(pipe.fileno())
        loop.stop()

    watch(pipe, stop)
    running = asyncio.create_task(loop.run(schedule))
    while not running.done():
        await asyncio.wait((running,), timeout=REPORT_S)
        _report(pipe, batch, loop, client, last=False)
    asyncio.get_running_loop().remove_reader(pipe.fileno())
    await running
    client.close()
    _report(pipe, batch, loop, client, last=True)


def _report(pipe: Connection, batch: list[RequestRecord], loop: OpenLoop, client: LoadClient, *, last: bool) -> None:
    records = tuple(batch)
    batch.clear()
    pipe.send(ShardReport(records, loop.sent, client.tokens, last))


def watch(pipe: Connection, callback: Callable[[], None]) -> None:
    """Has the event loop call `callback` whenever the pipe is readable. libuv makes a polled descriptor non-blocking,
    so it is set back: `Connection` reads and writes whole messages only on a blocking one."""
    asyncio.get_running_loop().add_reader(pipe.fileno(), callback)
    os.set_blocking(pipe.fileno(), True)


def start_instant_s() -> float:
    """Returns the start of a run: 0.2 s from now on the monotonic clock, so that every sender process gets the message
    before."""
    return time.monotonic() + 0.2
