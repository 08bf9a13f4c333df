"""Follows what an engine publishes of its KV cache over ZeroMQ, as vLLM does with `--kv-events-config`, and counts it.

Of the events only the numbers of blocks that were stored and removed are used, and that all were cleared: to know what
they hold would take the engine's tokenizer and hashes. The count is true once it has run from the start of the engine
or from a clear on, without a gap; what did not come is asked of the engine's replay socket, where there is one. Else,
and while there is no connection, the count is unknown, and the worker goes by what answers report.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import structlog

from hmas.contracts.worker import KvCacheCounted
from hmas.worker.adapters.block_count import BlockCount, read_batch
from hmas.worker.adapters.kv_events_config import KvEventsConfig, address_of
from hmas.worker.adapters.zeromq import DEALER, SUBSCRIBER, Bounds, Connection, connected

log = structlog.get_logger()
_LOST = (OSError, ValueError)
END_OF_REPLAY = 2**64 - 1
OFF_THE_LOOP = 8 * 2**10  # bytes of a batch above which it is read in a thread


class KvEvents:
    """Keeps following one engine; `post` gets the counts."""

    def __init__(self, engine: str, config: KvEventsConfig, post: Callable[[KvCacheCounted], None]) -> None:
        self._engine, self._config, self._post = engine, config, post
        self._count = BlockCount()
        self._posted_s = -1e9
        self._due: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Follows the engine until it is cancelled."""
        logged = False  # of a failure since it was followed
        try:
            while True:
                try:
                    async with self._connected(SUBSCRIBER, self._config.url) as events:
                        logged = False
                        await self._follow(events)
                except _LOST as error:
                    if not logged:
                        log.warning("kv_events_lost", engine=self._engine, url=self._config.url, reason=repr(error))
                        self._count.lose()
                        self._report()
                    logged = True
                await asyncio.sleep(self._config.retry_s)
        finally:
            if self._due is not None:
                self._due.cancel()

    async def _follow(self, events: Connection) -> None:
        await self._replay(0)  # the engine may have started meanwhile
        log.info("kv_events_followed", engine=self._engine, blocks=self._count.blocks)
        self._report()
        while True:
            number, payload = _message(await events.receive())
            if self._count.misses(number):
                await self._replay(self._count.next)
            await self._add(number, payload)
            self._tell()

    async def _add(self, number: int, payload: bytes) -> None:
        large = len(payload) > OFF_THE_LOOP
        self._count.count(number, await asyncio.to_thread(read_batch, payload) if large else read_batch(payload))

    async def _replay(self, first: int) -> None:
        """Counts what the engine has kept of the batches from the `first` on."""
        if not self._config.replay_url:
            return
        try:
            async with (
                asyncio.timeout(self._config.timeout_s),
                self._connected(DEALER, self._config.replay_url) as replay,
            ):
                await replay.send([b"", first.to_bytes(8, "big")])
                for _ in range(self._config.max_replayed):
                    number, payload = _message(await replay.receive())
                    if number == END_OF_REPLAY:
                        self._count.replayed()
                        return
                    await self._add(number, payload)
                raise ValueError(f"a replay has more than {self._config.max_replayed} batches")
        except _LOST as error:  # whether batches are missing is shown by the next one
            self._count.lose()
            log.warning("kv_events_not_replayed", engine=self._engine, reason=repr(error))

    def _connected(self, kind: str, url: str) -> AbstractAsyncContextManager[Connection]:
        bounds = Bounds(max_bytes=self._config.max_bytes, timeout_s=self._config.timeout_s)
        return connected(kind, address_of(url), bounds)

    def _tell(self) -> None:
        """Reports the count at once if all was cleared, and otherwise when the period is over."""
        wait_s = self._posted_s + self._config.period_s - time.monotonic()
        if self._count.cleared or wait_s <= 0.0:
            self._report()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(wait_s, self._report)

    def _report(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        self._posted_s = time.monotonic()
        self._post(self._count.take(self._engine))


def _message(frames: list[bytes]) -> tuple[int, bytes]:
    """Returns a batch's number and payload, which are the last frames; replays have the topic or not, by version."""
    if len(frames) < 2 or len(frames[-2]) != 8:
        raise ValueError("a message that is not a batch of KV events")
    return int.from_bytes(frames[-2], "big"), frames[-1]
