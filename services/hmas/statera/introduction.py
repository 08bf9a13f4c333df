"""Restores a worker's last control tuple when its first heartbeat arrives."""

from collections.abc import Callable

import structlog

from hmas.contracts.control import ControlTuple
from hmas.contracts.control_agents import TupleRestored
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.introduction import Introduction
from hmas.wire import subjects

log = structlog.get_logger()
LAST_TUPLE_MAX_AGE_S = 600.0  # the set-points of an older tuple belong to a load that is over


class WorkerIntroduction:
    """Reads a worker's last control tuple from the control bucket before it posts the worker's first heartbeat, so that
    a new writer goes on from that tuple."""

    def __init__(self, bucket: ControlBucket, post: Callable[[object], None]) -> None:
        self._bucket = bucket
        self._post = post
        self.hear = Introduction(lambda heartbeat: heartbeat.worker, self._restore, post).hear

    async def _restore(self, worker: str) -> None:
        try:
            last = await self._bucket.read(ControlTuple, subjects.tuple_key(worker))
        except BucketUnavailable as error:
            log.warning("last_tuple_unread", worker=worker, error=str(error))
            return
        if last is not None and last[1] <= LAST_TUPLE_MAX_AGE_S:
            self._post(TupleRestored(last[0]))
