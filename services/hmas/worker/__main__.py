"""Starts a worker: `python -m hmas.worker`."""

from collections.abc import Mapping

import structlog

from hmas import entry_points
from hmas.contracts.control import (
    ControlTuple,
    LayoutDecision,
    LayoutReceived,
    TopologyDecision,
    TopologyReceived,
    TupleReceived,
)
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.routes import ROUTES, Role
from hmas.entry_points import loaded
from hmas.laws.recording import AgentOrigin
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.ids import incarnation
from hmas.runtime.lifecycle import StopSignal, run_service, run_until
from hmas.runtime.ops import ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.security import security_of
from hmas.wire import subjects
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter
from hmas.worker.agent import WorkerAgent
from hmas.worker.agent.order.plugged import plugged
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology
from hmas.worker.agent.shadow import ShadowWorker
from hmas.worker.discovery.engines import DiscoveredEngines
from hmas.worker.discovery.source import FileSource
from hmas.worker.metrics import WorkerMetrics
from hmas.worker.observer import GrantObserver
from hmas.worker.onlookers import Onlookers
from hmas.worker.order_watch import OrderWatch
from hmas.worker.settings import WorkerSettings
from hmas.worker.shell import WorkerShell
from hmas.worker.streams import GatewayStreams, GatewayStreamsConfig

log = structlog.get_logger()


def _follow(
    bus: Bus, bucket: ControlBucket, shell: WorkerShell, discovered: DiscoveredEngines, worker: str, pool: str
) -> None:
    """Passes controls to the worker's agent: each one that is published and, after each connection to NATS, the last
    ones that the control bucket holds. Discovery hears which other workers there are."""

    async def read_kept() -> None:
        try:
            topology = await bucket.read(TopologyDecision, subjects.topology_key(pool))
            layout = await bucket.read(LayoutDecision, subjects.layout_key(pool))
            control = await bucket.read(ControlTuple, subjects.tuple_key(worker))
        except BucketUnavailable:
            return  # controls that are published arrive without the bucket
        if topology is not None:
            shell.post(TopologyReceived(*topology))
        if layout is not None:
            shell.post(LayoutReceived(*layout))
        if control is not None:
            shell.post(TupleReceived(*control))

    # A worker with engines of its own need not decode the heartbeats of all others.
    routes = [route for route in ROUTES if discovered.looking or route.message is not WorkerHeartbeat]
    own = {"worker": worker, "pool": pool}
    bus.follow(Role.WORKER, shell.post, own=own, receive={WorkerHeartbeat: discovered.hear}, routes=routes)
    bus.on_connected(read_kept)


def _warn_of_loopback(settings: WorkerSettings) -> None:
    """Names in the log each engine that gateways on other hosts cannot reach."""
    for engine in settings.unreachable_engines():
        log.warning(
            "engine_on_loopback",
            engine=engine.label,
            url=engine.endpoint,
            hint="gateways on other hosts cannot reach it: set its `advertise_url` in HMAS_ENGINES",
        )


def warn_of_split(settings: WorkerSettings) -> None:
    """Says in the log that no request will be split, if HMAS_SPLIT asks for it and no engine is known to hand KV over.
    A file of engines may say so of each."""
    hand_over = settings.kv_transfer or any(engine.kv_transfer for engine in settings.fixed_engines)
    if settings.split != "never" and not hand_over and not isinstance(settings.source, FileSource):
        log.warning(
            "no_engine_hands_kv_over",
            split=settings.split,
            hint="one engine serves each request: set HMAS_KV_TRANSFER, or the engines' `kv_transfer` in HMAS_ENGINES",
        )


def _topologies(settings: WorkerSettings) -> Mapping[str, MakeTopology]:
    """Returns the makers of the topologies that this worker knows. Raises ValueError."""
    if not settings.topologies:
        return TOPOLOGIES
    return plugged(loaded(entry_points.TOPOLOGIES, TOPOLOGIES, settings.topologies), OrderWatch())


async def serve(settings: WorkerSettings, worker: str, stop: StopSignal) -> None:
    """Runs the worker named `worker` until `stop` is requested, then drains it and closes everything it opened."""
    started_as = incarnation()
    bus = Bus(settings, worker)
    streams = GatewayStreams(
        GatewayStreamsConfig(worker=worker, incarnation=started_as, silence_s=settings.silence_s),
        security=security_of(settings),
    )
    port = await streams.start(settings.stream_host, settings.stream_port)
    address = settings.advertised(port)
    await streams.start_local(address)
    config = settings.worker_config(worker, started_as, address)
    recorder = Recorder(AgentOrigin(Role.WORKER, worker, config), settings)
    bus.answer(subjects.QUERY_EFFECTS, recorder.answer)
    topologies = _topologies(settings)
    observer = None
    if settings.mode == "observe":
        observer = GrantObserver(ShadowWorker(config, topologies), streams.send)
    discovered = DiscoveredEngines(settings, bus, worker, f"{worker}/{started_as}")
    agent = WorkerAgent(config, topologies)
    onlookers = Onlookers(worker, agent.queue_view if observer is None else observer.queue_view)
    bus.answer(subjects.QUERY_QUEUE, onlookers.answer)
    shell = WorkerShell(
        agent,
        streams,
        bus,
        WorkerMetrics(),
        observe=recorder.observe if observer is None else observer.beside(recorder.observe),
        released=discovered.release,
        told=lambda heartbeat: heartbeat if observer is None else observer.tell(heartbeat),
    )
    _warn_of_loopback(settings)
    warn_of_split(settings)
    engines = {c.facts.name: OpenAiHttpAdapter(c, shell.post) for c in settings.engine_configs()}
    _follow(bus, ControlBucket(bus, worker, makes=False), shell, discovered, worker, settings.pool)
    ops = ops_server(
        settings.ops_host,
        settings.ops_port,
        lambda: any(adapter.up for adapter in engines.values()) or discovered.ready,
        token=settings.ops_token(),
    )
    await ops.start()
    try:
        await run_until(
            stop,
            shell.run(engines),
            bus.run(),
            discovered.run(shell),
            drain=lambda: shell.drain(settings.drain_grace_s),
        )
    finally:
        await discovered.close()
        for adapter in engines.values():
            await adapter.close()
        await streams.close()
        await bus.close()
        recorder.close()
        await ops.stop()


def main() -> None:
    run_service("worker", WorkerSettings, serve)


if __name__ == "__main__":
    main()
