"""Keeps the JetStream streams that store the audit and what scheduling would bring: what is published while there is
none is lost."""

import asyncio

import structlog

from hmas.runtime.bucket import BucketUnavailable, ControlBucket

log = structlog.get_logger()
CHECK_S = 5.0


class AuditStream:
    """Makes the streams, and makes them again where they were deleted or could not be made."""

    def __init__(self, bucket: ControlBucket) -> None:
        self._bucket = bucket
        self._there = True

    async def ensure(self) -> None:
        """Makes the streams that are missing. Says once that it cannot."""
        try:
            await self._bucket.ensure_audit_stream()
            await self._bucket.ensure_gain_stream()
            self._there = True
        except BucketUnavailable as error:
            if self._there:
                log.warning("audit_stream_unavailable", error=str(error), effect="the audit is not stored meanwhile")
            self._there = False

    async def keep(self) -> None:
        """Looks every `CHECK_S` seconds, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_S)
            await self.ensure()
