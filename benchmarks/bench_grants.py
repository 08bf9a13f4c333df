"""One worker as the brain of a pool: grants per second with 64 engines, 4 gateways and 10,000 queued requests.

The worker is the real process, on a core of its own, with the real streams. The gateways are synthetic: they answer
each grant with its start, its first token and its end, and submit another request. They live in one process on the
other core, with the engines' one HTTP server, which reports no load.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.hop.systems import environment, process
from hmas.contracts.execution import Ended, FirstToken, Grant, Started, Submit, Synced, WorkerMessage
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import WIRE_VERSION, WorkerHeartbeat
from hmas.contracts.request import Request, Slo
from hmas.gateway.streams import StreamConfig, WorkerStreams
from hmas.mesh.ports import free_port

ENGINES, SLOTS, GATEWAYS, QUEUED = 64, 16, 4, 10_000
RAMP_S, SECONDS = 3.0, 8.0
GOAL = 2_000  # grants a second


@dataclass
class SyntheticGateway:
    """Keeps its share of `QUEUED` requests waiting at the worker, and carries out what is granted in no time."""

    name: str
    granted: int = 0
    submitted: int = 0
    connected: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.streams = WorkerStreams(self.name, "1", self, StreamConfig())

    def on_connected(self, worker: str, connected: bool, silent_s: float) -> None:
        if connected:
            for _ in range(QUEUED // GATEWAYS):
                self._submit()
            self.streams.send(worker, Synced())
            self.connected.set()

    def on_message(self, worker: str, message: WorkerMessage) -> None:
        if not isinstance(message, Grant):
            return
        self.granted += 1
        name, grant = message.request_id, message.grant
        ended = Ended(request_id=name, grant=grant, outcome=Outcome.FINISHED, output_tokens=64, prompt_tokens=300)
        for answer in (Started(name, grant), FirstToken(name, grant), ended):
            self.streams.send(worker, answer)
        self._submit()

    def _submit(self) -> None:
        self.submitted += 1
        request = Request(
            id=f"{self.name}-{self.submitted:026d}",
            model="mock",
            tenant=f"t{self.submitted % 8}",
            flow="",
            prompt_tokens=300,
            max_tokens=256,
            stream=True,
            slo=Slo(600.0, 0.1),
            slo_stated=True,
            priority=0,
            weight=1.0,
            importance=1.0,
            arrival_s=time.monotonic(),
        )
        self.streams.send("w", Submit(request=request, attempt=1))


async def _run(worker: psutil.Process, port: int) -> tuple[float, float]:
    """Returns grants per second, and the worker's CPU seconds per second."""
    gateways = [SyntheticGateway(f"g{i}") for i in range(GATEWAYS)]
    heartbeat = WorkerHeartbeat(
        worker="w", incarnation="1", address=f"127.0.0.1:{port}", wire_version=WIRE_VERSION, pool="mock", aliases=(),
        engines=(), queued=0, queued_tokens=0, running=0, max_queued=0, max_queued_tokens=0, backlog_s=0.0,
        draining=False,
    )  # fmt: skip
    for gateway in gateways:
        gateway.streams.ensure(heartbeat)
    for gateway in gateways:
        await asyncio.wait_for(gateway.connected.wait(), 30.0)
    await asyncio.sleep(RAMP_S)

    def seen() -> tuple[float, int, float]:
        times = worker.cpu_times()
        return time.monotonic(), sum(gateway.granted for gateway in gateways), times.user + times.system

    before = seen()
    await asyncio.sleep(SECONDS)
    elapsed_s, granted, cpu_s = (now - then for now, then in zip(seen(), before, strict=True))
    for gateway in gateways:
        await gateway.streams.close()
    return granted / elapsed_s, cpu_s / elapsed_s


def rows() -> list[dict[str, Any]]:
    engine_port, port = free_port(), free_port()
    engine = [sys.executable, "-m", "benchmarks.mock_engine", "--port", str(engine_port)]
    url = f"http://127.0.0.1:{engine_port}"
    engines = [{"url": url, "name": f"e{i}", "kind": "emulated", "max_num_seqs": SLOTS} for i in range(ENGINES)]
    with tempfile.TemporaryDirectory() as scratch, process(engine, engine_port, {1}):
        settings = {
            "HMAS_INSTANCE": "w",
            "HMAS_POOL": "mock",
            "HMAS_ENGINES": json.dumps(engines),
            "HMAS_STREAM_PORT": str(port),
            "HMAS_OPS_PORT": "0",
            "HMAS_NATS_URL": f"nats://127.0.0.1:{free_port()}",  # nobody is there: serving does not need it
            "HMAS_LOG_LEVEL": "error",
            "HMAS_DATA_DIR": str(Path(scratch)),
        }
        argv = [sys.executable, "-m", "hmas.worker"]
        with process(argv, port, {0}, **environment(**settings)) as worker:
            os.sched_setaffinity(0, {1})
            per_s, busy = asyncio.run(_run(worker, port))
    row = {"name": f"grants of one worker, {ENGINES} engines, {GATEWAYS} gateways, {QUEUED:,} queued"}
    return [
        {**row, "value": per_s, "unit": "1/s", "goal": f">= {GOAL}", "met": per_s >= GOAL},
        {"name": "the worker's CPU meanwhile", "value": busy, "unit": "cores", "goal": None, "met": None},
    ]
