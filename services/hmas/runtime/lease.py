"""The lease of the single writer: one copy of an agent writes, the others stand by (DESIGN §3.2).

The holder renews its lease by compare-and-swap. A copy that saw no renewal for `ttl_s` seconds by its own clock takes
over with the next epoch; clocks of different hosts are never compared. A holder that cannot renew for `ttl_s` seconds
gives up by itself. Thus two copies never write in the same epoch, and receivers ignore an older epoch.

Leases are kept in NATS's memory, so that neither a full disk nor a bucket that was deleted costs the mesh its leader. A
NATS server that starts anew has none: the first copy that comes takes the lease, with the epoch after the last that it
has seen.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import structlog
from google.protobuf.message import DecodeError
from prometheus_client import Gauge

from hmas.contracts.control import MAX_EPOCH
from hmas.laws.transitions import IllegalTransition
from hmas.runtime.bucket import BucketUnavailable, LeaseBucket
from hmas.wire.codec import MALFORMED
from hmas.wire.subjects import lease_key
from hmas.wire.v1 import observe_pb2

log = structlog.get_logger()
HELD = Gauge("hmas_lease_held", "1 while this copy holds the lease of its role, so that its decisions count", ["role"])
WARN_AFTER_S = 10.0  # without a leader; a take-over from a copy that died lasts a third of it
WARN_EVERY_S = 60.0


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


def encode_lease(holder: str, epoch: int) -> bytes:
    return observe_pb2.Lease(holder=holder, epoch=epoch).SerializeToString()


def decode_lease(key: str, value: bytes) -> tuple[str, int]:
    """Returns holder and epoch of a lease; no holder and epoch 0 if the bytes are not a lease that this mesh writes."""
    try:
        lease = observe_pb2.Lease.FromString(value)
    except DecodeError:
        lease = observe_pb2.Lease(epoch=-1)
    if 0 <= lease.epoch < MAX_EPOCH:
        return lease.holder, lease.epoch
    MALFORMED.labels("Lease").inc()
    log.warning("lease_malformed", key=key, epoch=lease.epoch, hint="the lease is started anew")
    return "", 0


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

    `holder` names this process, so that no other ever has the same name. `ttl_s`: seconds without renewal after which a
    lease is lost. `renew_s`: seconds between two attempts. While this copy neither holds the lease nor sees another
    renew it, it warns.
    """

    def __init__(
        self,
        bucket: LeaseBucket,
        role: str,
        holder: str,
        granted: Callable[[int], None],
        lost: Callable[[], None],
        *,
        ttl_s: float = 3.0,
        renew_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket, self._role, self._key, self._holder = bucket, role, lease_key(role), holder
        self._granted, self._lost = granted, lost
        self._ttl_s, self._renew_s, self._clock = ttl_s, renew_s, clock
        self._state = LeaseState.STANDBY
        self._holding = Holding(0, 0, 0.0)  # stays as it was after the lease is lost
        self._epoch = 0  # the last that was seen, of any copy
        self._seen: tuple[int, float] | None = None  # another copy's last revision, and when it was first seen
        self._led_s = clock()  # when this copy last held the lease or saw another one's renewal
        self._warned_s = float("-inf")
        self._trouble = "no answer yet"  # why the last attempt failed
        HELD.labels(role).set(0)

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
        HELD.labels(self._role).set(self.held)
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
        except BucketUnavailable as error:
            self._trouble = str(error)
            if self.held and self._clock() - self._holding.renewed_s > self._ttl_s:
                self.change(LeaseChange.UNREACHABLE)
        self._watch()

    def _watch(self) -> None:
        """Warns while nobody leads, as far as this copy can see."""
        now_s = self._clock()
        if self.held:
            self._led_s = now_s
        leaderless_s = now_s - self._led_s
        if leaderless_s > WARN_AFTER_S and now_s - self._warned_s > WARN_EVERY_S:
            self._warned_s = now_s
            log.warning("nobody_leads", key=self._key, seconds=round(leaderless_s), reason=self._trouble)

    async def release(self) -> None:
        """Gives up the lease, if it is held, so that a standby copy can take over at once."""
        if not self.held:
            return
        try:
            await self._bucket.swap(self._key, encode_lease("", self._holding.epoch), self._holding.revision)
        except BucketUnavailable:
            pass
        self.change(LeaseChange.RELEASED)

    async def _renew(self) -> None:
        started_s = self._clock()
        epoch = self._holding.epoch
        renewed = await self._bucket.swap(self._key, encode_lease(self._holder, epoch), self._holding.revision)
        if renewed is None:
            self.change(LeaseChange.TAKEN)
            return
        self.change(LeaseChange.RENEWED, Holding(renewed, epoch, started_s))

    async def _try_take(self) -> None:
        entry = await self._bucket.get(self._key)
        if entry is None:
            await self._take(0)
            return
        value, revision = entry
        holder, epoch = decode_lease(self._key, value)
        self._epoch = max(self._epoch, epoch)
        now_s = self._clock()
        if self._seen is None or self._seen[0] != revision:
            self._seen = (revision, now_s)
            if holder:
                self._led_s = now_s
        # The lease is this copy's own where a renewal arrived but its answer did not.
        if holder in ("", self._holder) or now_s - self._seen[1] > self._ttl_s:
            await self._take(revision)

    async def _take(self, revision: int) -> None:
        started_s = self._clock()
        epoch = self._epoch + 1 if self._epoch + 1 < MAX_EPOCH else 1
        taken = await self._bucket.swap(self._key, encode_lease(self._holder, epoch), revision)
        if taken is None:
            self._trouble = "another copy was faster"
            return
        self._epoch, self._seen = epoch, None
        self.change(LeaseChange.GRANTED, Holding(taken, epoch, started_s))
