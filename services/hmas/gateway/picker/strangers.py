"""The streams of the endpoint picker on which nobody has shown an API key yet."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hmas.gateway.metrics import CONNECTIONS_REFUSED


class Strangers:
    """Of these streams the newest `most` are kept, each for `within_s` seconds."""

    def __init__(self, most: int = 1024, within_s: float = 5.0) -> None:
        self._most, self._within_s = most, within_s
        self._times: dict[asyncio.Timeout, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._times)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A stream is one of them inside. Raises TimeoutError there when its time is over or a newer one takes its
        place."""
        if len(self._times) >= self._most:
            oldest = next(iter(self._times))
            del self._times[oldest]
            CONNECTIONS_REFUSED.labels("picker_displaced").inc()
            if not oldest.expired():
                oldest.reschedule(0.0)
        async with asyncio.timeout(self._within_s) as time:
            self._times[time] = None
            try:
                yield
            finally:
                self._times.pop(time, None)
