"""The shell of discovery: reads the source and the leases, and watches the engines that belong to this worker."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, assert_never

import structlog
from prometheus_client import Gauge

from hmas.contracts.ownership import (
    EngineReleased,
    EnginesFound,
    LeaseSeen,
    LeaseUnreachable,
    LeaseWritten,
    LeaveEngine,
    OwnershipEffect,
    OwnershipEnded,
    OwnershipEvent,
    OwnershipTicked,
    PeerHeard,
    ReadLease,
    ReturnEngine,
    TakeEngine,
    WriteLease,
)
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.worker import EngineLeft, EngineReturned
from hmas.runtime.bucket import BucketUnavailable, LeaseBucket
from hmas.runtime.bus import Bus
from hmas.runtime.extras import CannotStart
from hmas.runtime.host import AgentHost
from hmas.runtime.lease import decode_lease, encode_lease
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.step_failures import StepFailures
from hmas.wire.subjects import engine_lease_key
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter
from hmas.worker.discovery.agent.ownership import EngineOwnership, OwnershipConfig
from hmas.worker.discovery.dns import DnsEngines, Found
from hmas.worker.discovery.file import FileEngines
from hmas.worker.discovery.kubernetes import ApiServer, KubernetesEngines
from hmas.worker.discovery.source import DnsSource, FileSource, KubernetesSource
from hmas.worker.settings import EngineSettings, WorkerSettings
from hmas.worker.shell import WorkerShell

log = structlog.get_logger()
TICK_S = 0.1
OPERATIONS = 16  # on the bucket at a time
FAREWELL_S = 2.0  # for giving up the leases at the end
FOUND = Gauge("hmas_worker_engines_found", "Engines that the source of engines names, of all workers of the pool")
OWNED = Gauge("hmas_worker_engines_owned", "Engines found whose lease this worker holds")


class EngineReader(Protocol):
    """Reads a source of engines until it is cancelled; `found` gets all of its engines whenever they may have
    changed."""

    async def run(self, found: Found) -> None: ...


def reader_of(settings: WorkerSettings) -> EngineReader | None:
    """Returns the reader of the source that HMAS_ENGINES names, None if it lists engines. Raises OSError."""
    match settings.source:
        case DnsSource() as source:
            return DnsEngines(source, settings.discovery_period_s)
        case FileSource(path):
            return FileEngines(path, settings.discovery_period_s)
        case KubernetesSource() as source:
            return KubernetesEngines(source, ApiServer.of_pod(settings.kubernetes_api))
        case None:
            return None


class DiscoveredEngines:
    """The engines that a source names, as far as their leases are this worker's. Without a source it does nothing.

    `worker` is this worker's name, `holder` that of its process in leases.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        bus: Bus,
        worker: str,
        holder: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._bus, self._worker_name = settings, bus, worker
        self._reader = reader_of(settings)
        self._bucket = LeaseBucket(bus)
        self._host: AgentHost[OwnershipEvent, OwnershipEffect] = AgentHost(
            EngineOwnership(OwnershipConfig(holder=holder)), self._execute, clock, failed=StepFailures().report
        )
        self._shell: WorkerShell | None = None
        self._found: dict[str, EngineSettings] = {}
        self._read = False
        self._watched: dict[str, tuple[OpenAiHttpAdapter, asyncio.Task[None], EngineSettings]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations = asyncio.Semaphore(OPERATIONS)
        self._sparingly = LogRateLimit()

    @property
    def looking(self) -> bool:
        """Whether there is a source of engines."""
        return self._reader is not None

    @property
    def ready(self) -> bool:
        """Whether the source has been read: a worker without an engine then stands by."""
        return self._read

    async def run(self, shell: WorkerShell) -> None:
        """Looks for engines until it is cancelled."""
        self._shell = shell
        async with asyncio.TaskGroup() as tasks:
            if self._reader is None:
                tasks.create_task(asyncio.Event().wait())
                return
            tasks.create_task(self._reader.run(self._find))
            tasks.create_task(self._tick())

    async def close(self) -> None:
        """Gives up all leases, and watches no engine any more."""
        self._host.post(OwnershipEnded())
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL_S)
        for engine in list(self._watched):
            self._unwatch(engine)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL_S)
        for task in self._tasks:
            task.cancel()

    def release(self, engine: str) -> None:
        """Learns from the worker's agent that nothing of this worker runs on an engine that was left."""
        self._unwatch(engine)
        self._host.post(EngineReleased(engine))

    async def _tick(self) -> None:
        await self._bus.wait_connected()
        while True:
            self._host.post(OwnershipTicked())
            await asyncio.sleep(TICK_S)

    def hear(self, heartbeat: WorkerHeartbeat) -> None:
        """Learns that a worker is there, with which engines of its pool are to be shared: one that has none, or has its
        engines by leases, and is not about to stop."""
        leases = [engine.epoch > 0 for engine in heartbeat.engines]
        shares = all(leases) and not (leases and heartbeat.draining)
        if shares and heartbeat.pool == self._settings.pool and heartbeat.worker != self._worker_name:
            self._host.post(PeerHeard(heartbeat.worker))

    def _find(self, engines: tuple[EngineSettings, ...]) -> None:
        found = {engine.label: engine for engine in engines}
        if not self._read or found.keys() != self._found.keys():
            log.info("engines_found", engines=len(found), new=sorted(found.keys() - self._found.keys())[:16],
                     gone=sorted(self._found.keys() - found.keys())[:16])  # fmt: skip
        self._found, self._read = found, True
        FOUND.set(len(found))
        changed = {name for name, (*_, taken) in self._watched.items() if found.get(name, taken) != taken}
        self._host.post(EnginesFound(tuple(found), frozenset(changed)))

    # --- effects -------------------------------------------------------------------------------------------------

    def _execute(self, effect: OwnershipEffect) -> None:
        match effect:
            case ReadLease(engine):
                self._start(self._reading(engine))
            case WriteLease():
                self._start(self._writing(effect))
            case TakeEngine(engine, epoch):
                self._watch(engine, epoch)
            case LeaveEngine(engine, reason):
                log.info("engine_left", engine=engine, reason=reason)
                self._worker.post(EngineLeft(engine, reason))
            case ReturnEngine(engine):
                log.info("engine_returned", engine=engine)
                self._worker.post(EngineReturned(engine))
            case _:
                assert_never(effect)

    @property
    def _worker(self) -> WorkerShell:
        assert self._shell is not None  # effects come after `run` alone
        return self._shell

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            async with self._operations:
                await work

        task = asyncio.ensure_future(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reading(self, engine: str) -> None:
        key = engine_lease_key(self._settings.pool, engine)
        try:
            entry = await self._bucket.get(key)
        except BucketUnavailable:
            self._host.post(LeaseUnreachable(engine))
            return
        value, revision = entry or (b"", 0)
        holder, epoch = decode_lease(key, value)
        self._host.post(LeaseSeen(engine, holder, epoch, revision))

    async def _writing(self, write: WriteLease) -> None:
        key = engine_lease_key(self._settings.pool, write.engine)
        try:
            revision = await self._bucket.swap(key, encode_lease(write.holder, write.epoch), write.revision)
        except BucketUnavailable:
            self._host.post(LeaseUnreachable(write.engine))
            return
        self._host.post(LeaseWritten(write.engine, revision))

    def _watch(self, name: str, epoch: int) -> None:
        engine = self._found[name]
        try:
            if self._settings.is_unreachable(engine):
                log.warning("engine_on_loopback", engine=name, url=engine.endpoint,
                            hint="gateways on other hosts cannot reach it: set its `advertise_url`")  # fmt: skip
            adapter = OpenAiHttpAdapter(self._settings.engine_config(engine, epoch), self._worker.post)
        except (OSError, ValueError, CannotStart) as error:
            self._sparingly.warn("engine_unusable", engine=name, reason=str(error))
            self._host.post(EngineReleased(name))
            return
        log.info("engine_taken", engine=name, epoch=epoch)
        self._worker.attach(adapter)
        self._watched[name] = adapter, asyncio.ensure_future(adapter.run()), engine
        OWNED.set(len(self._watched))

    def _unwatch(self, name: str) -> None:
        watched = self._watched.pop(name, None)
        if watched is None:
            return
        OWNED.set(len(self._watched))
        adapter, task, _ = watched

        async def close() -> None:
            task.cancel()
            await asyncio.wait([task])
            await adapter.close()

        self._start(close())
