"""Restores a worker's last control tuple when its first heartbeat arrives."""

import asyncio
from collections.abc import Callable

import structlog

from hmas.contracts.control import ControlTuple
from hmas.contracts.control_agents import TupleRestored
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.wire import subjects

log = structlog.get_logger()
LAST_TUPLE_MAX_AGE_S = 600.0  # the set-points of an older tuple belong to a load that is over


class WorkerIntroduction:
    """Reads a worker's last control tuple from the control bucket before it posts the worker's first heartbeat, so that
    a new writer goes on from that tuple."""

    def __init__(self, bucket: ControlBucket, post: Callable[[object], None]) -> None:
        self._bucket = bucket
        self._post = post
        self._known: set[str] = set()
        self._reading: dict[str, asyncio.Task[None]] = {}

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        if heartbeat.worker in self._known:
            self._post(HeartbeatReceived(heartbeat))
        elif heartbeat.worker not in self._reading:
            self._reading[heartbeat.worker] = asyncio.create_task(self._introduce(heartbeat))

    async def _introduce(self, heartbeat: WorkerHeartbeat) -> None:
        try:
            last = await self._bucket.read(ControlTuple, subjects.tuple_key(heartbeat.worker))
        except BucketUnavailable as error:
            log.warning("last_tuple_unread", worker=heartbeat.worker, error=str(error))
            last = None
        if last is not None and last[1] <= LAST_TUPLE_MAX_AGE_S:
            self._post(TupleRestored(last[0]))
        self._known.add(heartbeat.worker)
        self._post(HeartbeatReceived(heartbeat))
        del self._reading[heartbeat.worker]
