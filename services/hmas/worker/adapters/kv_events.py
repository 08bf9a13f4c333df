"""Follows what an engine publishes of its KV cache over ZeroMQ, as vLLM does with `--kv-events-config`, and counts it.

Of the events only the numbers of blocks that were stored and removed are used, and that all were cleared: to know what
they hold would take the engine's tokenizer and hashes. The count is true once it has run from the start of the engine
or from a clear on, without a gap; what did not come is asked of the engine's replay socket, where there is one. Else,
and while there is no connection, the count is unknown, and the worker goes by what answers report.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any
from urllib.parse import urlsplit

import structlog

from hmas.contracts.worker import KvCacheCounted
from hmas.runtime.msgpack import unpack
from hmas.runtime.zmtp import SUBSCRIBE_ALL, ZmtpError, ZmtpStream, connect

log = structlog.get_logger()
_LOST = (ZmtpError, OSError, EOFError, TimeoutError, ValueError)
END_OF_REPLAY = (2**64 - 1).to_bytes(8, "big")
ON_DEVICE = (None, "GPU")  # where blocks are that a prompt finds; copies elsewhere are not counted


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventsConfig:
    """`url`, `replay_url`: tcp://HOST:PORT of the engine's publisher, and of its replay socket, empty without one.
    `period_s`: between two reports of the count; that all was cleared is reported at once. `max_bytes`: of a batch of
    events. `max_replayed`: most batches that are read of a replay; vLLM keeps 10,000."""

    url: str
    replay_url: str = ""
    period_s: float = 0.02
    timeout_s: float = 3.0
    retry_s: float = 1.0
    max_bytes: int = 64 * 2**20
    max_replayed: int = 20_000

    def __post_init__(self) -> None:
        for url in filter(None, (self.url, self.replay_url)):
            address_of(url)


def address_of(url: str) -> tuple[str, int]:
    """Returns host and port of a ZeroMQ URL. Raises ValueError if it is none that can be connected to."""
    parts = urlsplit(url)
    if parts.scheme != "tcp" or not parts.hostname or parts.hostname == "*" or not parts.port:
        raise ValueError(f"the address of KV events {url!r} is unusable: give tcp://HOST:PORT")
    return parts.hostname, parts.port


class BlockCount:
    """The blocks in a cache, by the batches of its events in their order; `blocks` is None while it is unknown.
    `stored`, `removed`, `cleared`: what came since they were last taken. `next`: the number of the next batch."""

    def __init__(self) -> None:
        self.blocks: int | None = None
        self.stored = self.removed = 0
        self.cleared = False
        self.next = 0
        self._at = -inf  # the engine's time of the last batch
        self.whole = True  # nothing can have been missed since that

    def misses(self, number: int) -> bool:
        """Returns whether batches between the last one and this one did not come."""
        return number > self.next

    def count(self, number: int, payload: bytes) -> None:
        """Counts a batch; one that was counted already is left out. Raises ValueError if it is none."""
        at, events = _batch(unpack(payload))
        if number < self.next and at <= self._at:
            return
        if number != self.next:  # batches are missing, or the engine has started anew
            self._clear(0 if number == 0 else None)
        elif number == 0:
            self.blocks = 0
        self.next, self._at, self.whole = number + 1, at, True
        for kind, blocks in events:
            if kind == "AllBlocksCleared":
                self._clear(0)
            elif kind == "BlockStored":
                self.stored += blocks
                self.blocks = None if self.blocks is None else self.blocks + blocks
            elif kind == "BlockRemoved":
                self.removed += blocks
                self.blocks = None if self.blocks is None else max(0, self.blocks - blocks)

    def take(self, engine: str) -> KvCacheCounted:
        """Returns what is to be reported now."""
        blocks = self.blocks if self.whole else None
        report = KvCacheCounted(
            engine=engine, blocks=blocks, stored=self.stored, removed=self.removed, cleared=self.cleared
        )
        self.stored, self.removed, self.cleared = 0, 0, False
        return report

    def replayed(self) -> None:
        """Records that all came that the engine has kept; where that is nothing, it has stored nothing yet."""
        self.whole = True
        if not self.next:
            self.blocks = 0

    def lose(self) -> None:
        """Records that batches may be missed from now on; the next one tells whether any were."""
        self.whole = False

    def _clear(self, blocks: int | None) -> None:
        self.blocks, self.stored, self.removed, self.cleared = blocks, 0, 0, True


class KvEvents:
    """Keeps following one engine; `post` gets the counts."""

    def __init__(self, engine: str, config: KvEventsConfig, post: Callable[[KvCacheCounted], None]) -> None:
        self._engine, self._config, self._post = engine, config, post
        self._count = BlockCount()
        self._posted_s = -1e9
        self._due: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Follows the engine until it is cancelled."""
        connected = True  # so that the first failure is logged
        try:
            while True:
                try:
                    stream = await self._connect(self._config.url, "SUB")
                    try:
                        stream.send([SUBSCRIBE_ALL])
                        connected = True
                        await self._follow(stream)
                    finally:
                        stream.close()
                except _LOST as error:
                    if connected:
                        log.warning("kv_events_lost", engine=self._engine, url=self._config.url, reason=repr(error))
                        self._count.lose()
                        self._report()
                    connected = False
                await asyncio.sleep(self._config.retry_s)
        finally:
            if self._due is not None:
                self._due.cancel()

    async def _follow(self, stream: ZmtpStream) -> None:
        await self._replay(0)  # the engine may have started meanwhile
        log.info("kv_events_followed", engine=self._engine, blocks=self._count.blocks)
        self._report()
        while True:
            number, payload = _message(await stream.receive())
            if self._count.misses(_number(number)):
                await self._replay(_number(number))
            self._count.count(_number(number), payload)
            self._tell()

    async def _replay(self, before: int) -> None:
        """Counts what the engine has kept of the batches that did not come `before` this one; 0: all that it has."""
        if not self._config.replay_url:
            return
        try:
            stream = await self._connect(self._config.replay_url, "DEALER")
        except _LOST as error:
            log.warning("kv_events_not_replayed", engine=self._engine, reason=repr(error))
            return
        try:
            async with asyncio.timeout(self._config.timeout_s):
                stream.send([b"", (self._count.next if before else 0).to_bytes(8, "big")])
                for _ in range(self._config.max_replayed):
                    number, payload = _message(await stream.receive())
                    if number == END_OF_REPLAY or (before and _number(number) >= before):
                        self._count.replayed()
                        return
                    self._count.count(_number(number), payload)
        finally:
            stream.close()

    async def _connect(self, url: str, kind: str) -> ZmtpStream:
        host, port = address_of(url)
        return await connect(host, port, kind, max_bytes=self._config.max_bytes, timeout_s=self._config.timeout_s)

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


def _message(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Returns a batch's number and payload, which are the last frames; replays have the topic or not, by version."""
    if len(frames) < 2 or len(frames[-2]) != 8:
        raise ValueError("a message that is no batch of KV events")
    return frames[-2], frames[-1]


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _batch(batch: Any) -> tuple[float, list[tuple[str, int]]]:
    """Returns a batch's time, and the kinds of its events with the number of blocks of each. vLLM writes batches and
    events as arrays or as maps, depending on its version. Raises ValueError if it is none."""
    if isinstance(batch, dict):
        at, events = batch.get("ts"), batch.get("events")
    else:
        at, events = batch[:2] if _is_list(batch, 2) else (None, None)
    if not isinstance(at, float | int) or not isinstance(events, list):
        raise ValueError("a batch without a time and a list of events")
    return at, [_event(event) for event in events]


def _event(event: Any) -> tuple[str, int]:
    if isinstance(event, dict):
        kind, hashes, medium = event.get("type"), event.get("block_hashes"), event.get("medium")
    elif _is_list(event, 1):
        kind, hashes = event[0], event[1] if len(event) > 1 else None
        place = {"BlockStored": 6, "BlockRemoved": 2}.get(kind, 0) if isinstance(kind, str) else 0
        medium = event[place] if 0 < place < len(event) else None
    else:
        raise ValueError("an event that is neither an array nor a map")
    if not isinstance(kind, str):
        raise ValueError("an event without a type")
    return kind, len(hashes) if isinstance(hashes, list) and medium in ON_DEVICE else 0


def _is_list(value: Any, least: int) -> bool:
    return isinstance(value, list) and len(value) >= least
