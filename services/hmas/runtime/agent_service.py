"""The process around a control agent (QoS, meta or Statera): NATS, control bucket, lease, timer and ops server."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

from hmas.contracts.agent import Agent
from hmas.contracts.cadences import LIVE
from hmas.contracts.control_agents import EpochGranted, EpochLost, TimerTicked
from hmas.laws.recording import AgentOrigin
from hmas.runtime.bucket import FAILING, ControlBucket, LeaseBucket
from hmas.runtime.bus import Bus
from hmas.runtime.host import AgentHost
from hmas.runtime.ids import incarnation
from hmas.runtime.keeper import Keeper
from hmas.runtime.lease import Lease
from hmas.runtime.lifecycle import StopSignal, run_until
from hmas.runtime.ops import ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.settings import RuntimeSettings
from hmas.runtime.step_failures import StepFailures
from hmas.wire.subjects import QUERY_EFFECTS

Ev = TypeVar("Ev")
Ef = TypeVar("Ef")


class AgentService(Generic[Ev, Ef]):
    """Runs a control agent with everything it needs. `execute` carries out each of its effects.

    Before `run`, the caller subscribes on `bus`, and adds what must be read at start with `bus.on_connected`. Besides
    what the caller posts, the agent gets `EpochGranted`, `EpochLost` and, every `LIVE.control_tick_s` seconds,
    `TimerTicked`.
    """

    def __init__(
        self, origin: AgentOrigin, settings: RuntimeSettings, agent: Agent[Ev, Ef], execute: Callable[[Ef], None]
    ) -> None:
        instance = origin.name
        self.bus = Bus(settings, instance)
        self.bucket = ControlBucket(self.bus, instance)
        self.keeper = Keeper(self.bucket)
        self._recorder = Recorder(origin, settings)
        failed = StepFailures().report  # no message may end the process that decides for all
        self.host: AgentHost[Ev, Ef] = AgentHost(agent, execute, failed=failed, observe=self._recorder.observe)
        self.bus.answer(QUERY_EFFECTS, self._recorder.answer)
        self._settings = settings
        FAILING.set_function(lambda: self.bucket.failing_s)
        self._lease = Lease(
            LeaseBucket(self.bus),
            origin.role,
            f"{instance}/{incarnation()}",  # so that two copies with the same name are still two holders
            granted=lambda epoch: self.post(EpochGranted(epoch)),
            lost=lambda: self.post(EpochLost()),
        )

    def post(self, event: object) -> None:
        self.host.post(event)  # type: ignore[arg-type]  # every control agent accepts the three events above

    async def run(
        self,
        stop: StopSignal,
        *,
        start: Callable[[], Awaitable[None]] | None = None,
        finish: Callable[[], Awaitable[None]] | None = None,
        beside: Sequence[Coroutine[Any, Any, None]] = (),
    ) -> None:
        """Runs the agent until `stop` is set. `start` is awaited before the first event (to start a gRPC server, for
        instance) and `finish` at the end; `beside` is run as long as the agent is."""
        ops = ops_server(
            self._settings.ops_host,
            self._settings.ops_port,
            lambda: self.bus.connected,
            token=self._settings.ops_token(),
        )
        await ops.start()
        if start is not None:
            await start()
        try:
            await run_until(stop, self.bus.run(), self._lead(), self.keeper.run(), self._tick(), *beside)
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
