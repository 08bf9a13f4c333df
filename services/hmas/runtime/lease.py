"""The single writer's lease: one copy of an agent writes, the others stand by (DESIGN §3.2).

The holder renews by compare-and-swap. A copy that saw no renewal for `ttl_s` of its own clock takes over with the
next epoch; no clocks are compared. A holder that cannot renew for `ttl_s` gives up by itself, so that two never
write in the same epoch, and receivers ignore the older epoch.
"""

import asyncio
import logging
import time
from collections.abc import Callable

import structlog

from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.wire.subjects import lease_key
from hmas.wire.v1 import observe_pb2

log = structlog.get_logger()


class Lease:
    """Keeps trying for the lease of `role`; calls `granted(epoch)` and `lost()`."""

    def __init__(
        self,
        bucket: ControlBucket,
        role: str,
        holder: str,
        granted: Callable[[int], None],
        lost: Callable[[], None],
        *,
        ttl_s: float = 3.0,
        renew_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._key, self._holder = bucket, lease_key(role), holder
        self._granted, self._lost = granted, lost
        self._ttl_s, self._renew_s, self._clock = ttl_s, renew_s, clock
        self._revision: int | None = None  # of our own last write, while holding
        self._epoch = 0
        self._renewed_s = 0.0
        self._seen: tuple[int, float] | None = None  # another's revision and when it was first seen

    @property
    def held(self) -> bool:
        return self._revision is not None

    async def run(self) -> None:
        while True:
            await self.tick()
            await asyncio.sleep(self._renew_s)

    async def tick(self) -> None:
        """One attempt to renew or take over."""
        try:
            if self._revision is not None:
                await self._renew(self._revision)
            else:
                await self._try_take()
        except BucketUnavailable:
            if self.held and self._clock() - self._renewed_s > self._ttl_s:
                self._give_up("unreachable")

    async def release(self) -> None:
        """Lets a standby take over at once."""
        if self._revision is None:
            return
        try:
            await self._bucket.swap(self._key, self._value("", self._epoch), self._revision)
        except BucketUnavailable:
            pass
        self._give_up("released")

    async def _renew(self, revision: int) -> None:
        started_s = self._clock()
        renewed = await self._bucket.swap(self._key, self._value(self._holder, self._epoch), revision)
        if renewed is None:
            self._give_up("taken")
            return
        self._revision, self._renewed_s = renewed, started_s

    async def _try_take(self) -> None:
        entry = await self._bucket.get_raw(self._key)
        if entry is None:
            await self._take(0, self._epoch)
            return
        value, revision = entry
        lease = observe_pb2.Lease.FromString(value)
        now_s = self._clock()
        if self._seen is None or self._seen[0] != revision:
            self._seen = (revision, now_s)
        if lease.holder == "" or now_s - self._seen[1] > self._ttl_s:
            await self._take(revision, max(lease.epoch, self._epoch))

    async def _take(self, revision: int, last_epoch: int) -> None:
        started_s = self._clock()
        epoch = last_epoch + 1
        taken = await self._bucket.swap(self._key, self._value(self._holder, epoch), revision)
        if taken is None:
            return
        self._revision, self._epoch, self._renewed_s, self._seen = taken, epoch, started_s, None
        log.info("lease_granted", key=self._key, epoch=epoch)
        self._granted(epoch)

    def _give_up(self, reason: str) -> None:
        self._revision = None
        level = logging.INFO if reason == "released" else logging.WARNING
        log.log(level, "lease_lost", key=self._key, epoch=self._epoch, reason=reason)
        self._lost()

    @staticmethod
    def _value(holder: str, epoch: int) -> bytes:
        return observe_pb2.Lease(holder=holder, epoch=epoch).SerializeToString()
