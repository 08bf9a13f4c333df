"""Writes the last value of control messages to a bucket in the background, so that no decision waits."""

import asyncio
from typing import Any, Protocol

import structlog

from hmas.runtime.bucket import BucketUnavailable

log = structlog.get_logger()
RETRY_S = 0.5


class Writable(Protocol):
    """A bucket that takes values. `put` raises BucketUnavailable while it cannot be reached."""

    async def put(self, key: str, value: Any, /) -> None: ...


class Keeper:
    """Values that wait to be written to a bucket, at most one for each key: a newer value replaces one that
    was not written yet."""

    def __init__(self, bucket: Writable) -> None:
        self._bucket = bucket
        self._pending: dict[str, Any] = {}
        self._wake = asyncio.Event()

    def keep(self, key: str, value: Any) -> None:
        self._pending[key] = value
        self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                key, value = next(iter(self._pending.items()))
                try:
                    await self._bucket.put(key, value)
                except BucketUnavailable as error:
                    log.debug("bucket_unavailable", key=key, error=str(error))
                    await asyncio.sleep(RETRY_S)
                    continue
                if self._pending.get(key) is value:
                    del self._pending[key]
