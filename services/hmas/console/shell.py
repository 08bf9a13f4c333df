"""Shell of the console: hears the mesh, samples what was heard, and asks and acts for browsers."""

import asyncio
import time
from typing import Any

import nats.errors
import structlog
from fastapi import HTTPException

from hmas.console.state import SAMPLE_S, ConsoleState
from hmas.contracts.control import Pin, TopologyName
from hmas.contracts.routes import Role
from hmas.mesh.pin import store_pin
from hmas.mesh.why import timeline_of
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.bus import Bus

log = structlog.get_logger()
MAX_ASKING = 4  # timelines asked for at a time
PINNED_BY = "the console"


class ConsoleShell:
    """Feeds the console's state from the bus. `clock` returns Unix s and never runs backwards."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.state = ConsoleState()
        self._bus = bus
        self._bucket = ControlBucket(bus, name, makes=False)
        self._asking = asyncio.Semaphore(MAX_ASKING)
        self._offset_s = time.time() - time.monotonic()
        bus.follow(Role.CONSOLE, self._hear)

    def clock(self) -> float:
        return self._offset_s + time.monotonic()

    def _hear(self, value: Any) -> None:
        self.state.hear(self.clock(), value)

    def pools(self) -> frozenset[str]:
        return frozenset({*self.state.top.short, *self.state.top.decisions})

    async def run(self) -> None:
        """Samples the state until cancelled."""
        while True:
            self.state.connected = self._bus.connected
            self.state.sample(self.clock())
            await asyncio.sleep(SAMPLE_S)

    async def why(self, request_id: str) -> dict[str, Any] | None:
        """Returns a request's timeline, None if no gateway remembers it. Raises HTTPException 503."""
        try:
            async with self._asking:
                return await timeline_of(self._bus, request_id)
        except nats.errors.Error as error:
            raise HTTPException(503, "NATS cannot be reached") from error

    async def pin(self, pool: str, topology: TopologyName | None) -> None:
        """Pins a pool, or lifts its pin if `topology` is None. Raises HTTPException 503."""
        try:
            await store_pin(self._bus, self._bucket, Pin(pool, topology, by=PINNED_BY))
        except BucketUnavailable as error:
            raise HTTPException(503, f"the pin cannot be kept: {error}") from error
        log.info("pinned", pool=pool, topology=topology and topology.value)
