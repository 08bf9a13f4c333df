"""The process around a control agent (QoS, meta, Statera): bus, bucket, lease, timer, ops server, drain."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from hmas.contracts.agent import Agent
from hmas.contracts.cadences import LIVE
from hmas.contracts.control_agents import EpochGranted, EpochLost, TimerTicked
from hmas.laws.recording import AgentOrigin
from hmas.runtime.bucket import ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.host import AgentHost
from hmas.runtime.ids import incarnation
from hmas.runtime.keeper import Keeper
from hmas.runtime.lease import Lease
from hmas.runtime.lifecycle import Stop, run_until
from hmas.runtime.ops import ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.subjects import QUERY_EFFECTS

Ev = TypeVar("Ev")
Ef = TypeVar("Ef")


class AgentService(Generic[Ev, Ef]):
    """Subscribe on `bus` and add start-up reads with `bus.on_connected` before `run`.

    The agent hears `EpochGranted`, `EpochLost` and, every 50 ms, `TimerTicked` beside what the shell posts.
    """

    def __init__(
        self, origin: AgentOrigin, settings: RuntimeSettings, agent: Agent[Ev, Ef], execute: Callable[[Ef], None]
    ) -> None:
        instance = origin.name
        self.bus = Bus(settings, instance)
        self.bucket = ControlBucket(self.bus, instance)
        self.keeper = Keeper(self.bucket)
        self._recorder = Recorder(origin, settings)
        self.host: AgentHost[Ev, Ef] = AgentHost(agent, execute, observe=self._recorder.observe)
        self.bus.answer(QUERY_EFFECTS, self._recorder.answer)
        self._settings = settings
        self._lease = Lease(
            self.bucket,
            origin.role,
            f"{instance}/{incarnation()}",  # two copies that were given one name are two holders all the same
            granted=lambda epoch: self.post(EpochGranted(epoch)),
            lost=lambda: self.post(EpochLost()),
        )

    def post(self, event: object) -> None:
        self.host.post(event)  # type: ignore[arg-type]  # the three common events are part of every agent's union

    async def run(
        self,
        stop: Stop,
        *,
        start: Callable[[], Awaitable[None]] | None = None,
        finish: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Serves until `stop`. `start` runs before the first event (e.g. a gRPC server), `finish` at the end."""
        ops = ops_server(self._settings.ops_host, self._settings.ops_port, lambda: self.bus.connected)
        await ops.start()
        if start is not None:
            await start()
        try:
            await run_until(stop, self.bus.run(), self._lead(), self.keeper.run(), self._tick())
        finally:
            await self._lease.release()
            if finish is not None:
                await finish()
            await self.bus.close()
            self._recorder.close()
            await ops.stop()

    async def _lead(self) -> None:
        await self.bus.wait_connected()
        await self._lease.run()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(LIVE.control_tick_s)
            self.post(TimerTicked())
