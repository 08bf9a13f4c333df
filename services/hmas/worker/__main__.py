"""Starts a worker: `python -m hmas.worker`."""

import asyncio
import random
import secrets

from hmas.contracts.control import ControlTuple, TopologyDecision, TopologyReceived, TupleReceived
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.bus import Bus
from hmas.runtime.ids import incarnation
from hmas.runtime.lifecycle import Stop, run_service, run_until
from hmas.runtime.local import LocalListener
from hmas.runtime.ops import ops_server
from hmas.runtime.recorder import Recorder
from hmas.runtime.rpc import RpcServer
from hmas.runtime.tracing import open_tracing
from hmas.wire import subjects
from hmas.wire.v1 import execution_pb2, execution_pb2_grpc
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter
from hmas.worker.agent import WorkerAgent
from hmas.worker.metrics import WorkerMetrics
from hmas.worker.settings import WorkerSettings
from hmas.worker.shell import WorkerShell
from hmas.worker.streams import ExecutionServer, StreamServerConfig

EXECUTION = execution_pb2.DESCRIPTOR.services_by_name["Execution"].full_name


def _follow_controls(bus: Bus, bucket: ControlBucket, shell: WorkerShell, worker: str, pool: str) -> None:
    """Passes controls to the worker's agent: each one that is published and, after each connection to NATS, the last
    ones that the control bucket holds."""

    async def read_kept() -> None:
        try:
            topology = await bucket.read(TopologyDecision, subjects.topology_key(pool))
            control = await bucket.read(ControlTuple, subjects.tuple_key(worker))
        except BucketUnavailable:
            return  # controls that are published arrive without the bucket
        if topology is not None:
            shell.post(TopologyReceived(*topology))
        if control is not None:
            shell.post(TupleReceived(*control))

    bus.follow(Role.WORKER, shell.post, own={"worker": worker, "pool": pool})
    bus.on_connected(read_kept)


async def serve(settings: WorkerSettings, worker: str, stop: Stop) -> None:
    """Runs the worker named `worker` until `stop` is requested, then drains it and closes everything it opened."""
    started_as = incarnation()
    bus = Bus(settings, worker)
    execution = ExecutionServer(
        StreamServerConfig(worker=worker, incarnation=started_as, grace_s=settings.gateway_grace_s)
    )
    rpc = RpcServer()
    execution_pb2_grpc.add_ExecutionServicer_to_server(execution, rpc.server)  # type: ignore[no-untyped-call]
    port = await rpc.start(settings.grpc_host, settings.grpc_port, [EXECUTION])
    local = LocalListener(execution_pb2.GatewayFrame.FromString, execution.converse_locally)
    await local.start(started_as)
    config = settings.worker_config(worker, started_as, settings.advertised(port))
    seed = secrets.randbits(32) if settings.seed is None else settings.seed
    recorder = Recorder(AgentOrigin(Role.WORKER, worker, config, seed), settings)
    bus.answer(subjects.QUERY_EFFECTS, recorder.answer)
    tracing = open_tracing("worker", worker, settings)
    shell = WorkerShell(
        WorkerAgent(config, random.Random(seed)),
        execution,
        bus,
        WorkerMetrics(),
        max_body_bytes=settings.max_body_bytes,
        tracing=tracing,
        observe=recorder.observe,
    )
    engines = {c.facts.name: OpenAiHttpAdapter(c, shell.post) for c in settings.engine_configs()}
    _follow_controls(bus, ControlBucket(bus, worker), shell, worker, settings.pool)
    ops = ops_server(settings.ops_host, settings.ops_port, lambda: any(engine.up for engine in engines.values()))
    await ops.start()
    try:
        await run_until(stop, shell.run(engines), bus.run(), drain=lambda: shell.drain(settings.drain_grace_s))
    finally:
        for engine in engines.values():
            await engine.close()
        await execution.close()
        await local.close()
        await rpc.stop(0.5)
        await bus.close()
        recorder.close()
        await ops.stop()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)


def main() -> None:
    run_service("worker", WorkerSettings, serve)


if __name__ == "__main__":
    main()
