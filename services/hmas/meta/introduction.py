"""Restores a pool's pin and last decisions when the pool is first heard of, and its pin after a reconnection."""

from collections.abc import Callable

import structlog

from hmas.contracts.control import LayoutDecision, Pin, TopologyDecision
from hmas.contracts.control_agents import LayoutRestored, PinChanged, TopologyRestored
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.introduction import Introduction
from hmas.wire import subjects

log = structlog.get_logger()


class PoolIntroduction:
    """Reads a pool's pin and last decisions from the control bucket before it posts the first heartbeat of the pool.
    After a reconnection it reads the pins of all known pools again."""

    def __init__(self, bucket: ControlBucket, post: Callable[[object], None]) -> None:
        self._bucket = bucket
        self._post = post
        self._introduction = Introduction(lambda heartbeat: heartbeat.pool, self._restore, post)
        self.hear = self._introduction.hear

    async def connected(self) -> None:
        for pool in sorted(self._introduction.known):
            await self._read(pool, last_decision=False)

    async def _restore(self, pool: str) -> None:
        await self._read(pool, last_decision=True)

    async def _read(self, pool: str, *, last_decision: bool) -> None:
        try:
            pin = await self._bucket.read(Pin, subjects.pin_key(pool))
            last = await self._bucket.read(TopologyDecision, subjects.topology_key(pool)) if last_decision else None
            layout = await self._bucket.read(LayoutDecision, subjects.layout_key(pool)) if last_decision else None
        except BucketUnavailable as error:
            log.warning("last_decision_unread", pool=pool, error=str(error))
            return
        if last is not None:
            self._post(TopologyRestored(last[0]))
        if layout is not None:
            self._post(LayoutRestored(layout[0]))
        if pin is not None:
            self._post(PinChanged(pin[0]))
