"""The lease of the single writer: one copy of an agent writes, the others stand by (DESIGN §3.2).

The holder renews its lease by compare-and-swap. A copy that saw no renewal for `ttl_s` seconds by its own clock takes
over with the next epoch; clocks of different hosts are never compared. A holder that cannot renew for `ttl_s` seconds
gives up by itself. Thus two copies never write in the same epoch, and receivers ignore an older epoch.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog

from hmas.laws.transitions import IllegalTransition
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.wire.subjects import lease_key
from hmas.wire.v1 import observe_pb2

log = structlog.get_logger()


class LeaseState(StrEnum):
    STANDBY = "standby"
    HELD = "held"


class LeaseChange(StrEnum):
    """What may happen to a lease. It is lost because another copy has `taken` it, because the bucket was `unreachable`
    for too long, or because it was `released`."""

    GRANTED = "granted"
    RENEWED = "renewed"
    TAKEN = "taken"
    UNREACHABLE = "unreachable"
    RELEASED = "released"


TRANSITIONS: Mapping[LeaseState, Mapping[LeaseChange, LeaseState]] = {
    LeaseState.STANDBY: {LeaseChange.GRANTED: LeaseState.HELD},
    LeaseState.HELD: {
        LeaseChange.RENEWED: LeaseState.HELD,
        LeaseChange.TAKEN: LeaseState.STANDBY,
        LeaseChange.UNREACHABLE: LeaseState.STANDBY,
        LeaseChange.RELEASED: LeaseState.STANDBY,
    },
}


@dataclass(frozen=True, slots=True)
class Holding:
    """A lease as its holder knows it: the revision of its last write to the control bucket, the epoch it may write in,
    and when that write began, in seconds on this host's monotonic clock."""

    revision: int
    epoch: int
    renewed_s: float


class Lease:
    """Tries to get and to keep the lease of `role`; calls `granted(epoch)` when it gets the lease and `lost()` when it
    loses it.

    `holder` names this copy. `ttl_s`: seconds without renewal after which a lease is lost. `renew_s`: seconds between
    two attempts.
    """

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
        self._state = LeaseState.STANDBY
        self._holding = Holding(0, 0, 0.0)  # stays as it was after the lease is lost
        self._seen: tuple[int, float] | None = None  # another copy's last revision, and when it was first seen

    @property
    def state(self) -> LeaseState:
        return self._state

    @property
    def held(self) -> bool:
        return self._state is LeaseState.HELD

    def change(self, change: LeaseChange, holding: Holding | None = None) -> None:
        """Changes the state; nothing else does. Calls `granted` or `lost`. `holding` comes with a grant or a renewal.

        Raises IllegalTransition, and changes nothing, if `TRANSITIONS` does not allow the change in this state.
        """
        before = self._state
        if change not in TRANSITIONS[before]:
            raise IllegalTransition(f"{self._key}: the change `{change}` is not allowed while the lease is {before}")
        self._state = after = TRANSITIONS[before][change]
        self._holding = holding or self._holding
        if before is after:
            return
        epoch = self._holding.epoch
        if after is LeaseState.HELD:
            log.info("lease_granted", key=self._key, epoch=epoch)
            self._granted(epoch)
        else:
            level = logging.INFO if change is LeaseChange.RELEASED else logging.WARNING
            log.log(level, "lease_lost", key=self._key, epoch=epoch, reason=change.value)
            self._lost()

    async def run(self) -> None:
        while True:
            await self.tick()
            await asyncio.sleep(self._renew_s)

    async def tick(self) -> None:
        """Tries once to renew the lease if it is held, otherwise to take it if it is free."""
        try:
            if self.held:
                await self._renew()
            else:
                await self._try_take()
        except BucketUnavailable:
            if self.held and self._clock() - self._holding.renewed_s > self._ttl_s:
                self.change(LeaseChange.UNREACHABLE)

    async def release(self) -> None:
        """Gives up the lease, if it is held, so that a standby copy can take over at once."""
        if not self.held:
            return
        try:
            await self._bucket.swap(self._key, self._value("", self._holding.epoch), self._holding.revision)
        except BucketUnavailable:
            pass
        self.change(LeaseChange.RELEASED)

    async def _renew(self) -> None:
        started_s = self._clock()
        epoch = self._holding.epoch
        renewed = await self._bucket.swap(self._key, self._value(self._holder, epoch), self._holding.revision)
        if renewed is None:
            self.change(LeaseChange.TAKEN)
            return
        self.change(LeaseChange.RENEWED, Holding(renewed, epoch, started_s))

    async def _try_take(self) -> None:
        entry = await self._bucket.get_raw(self._key)
        if entry is None:
            await self._take(0, self._holding.epoch)
            return
        value, revision = entry
        lease = observe_pb2.Lease.FromString(value)
        now_s = self._clock()
        if self._seen is None or self._seen[0] != revision:
            self._seen = (revision, now_s)
        if lease.holder == "" or now_s - self._seen[1] > self._ttl_s:
            await self._take(revision, max(lease.epoch, self._holding.epoch))

    async def _take(self, revision: int, last_epoch: int) -> None:
        started_s = self._clock()
        epoch = last_epoch + 1
        taken = await self._bucket.swap(self._key, self._value(self._holder, epoch), revision)
        if taken is None:
            return
        self._seen = None
        self.change(LeaseChange.GRANTED, Holding(taken, epoch, started_s))

    @staticmethod
    def _value(holder: str, epoch: int) -> bytes:
        return observe_pb2.Lease(holder=holder, epoch=epoch).SerializeToString()
