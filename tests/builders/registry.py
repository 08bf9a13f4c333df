"""Plain heartbeats and engines, in which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.registry import WIRE_VERSION, EngineInfo, WorkerHeartbeat

ENGINE = EngineInfo(
    engine="e1", up=True, dialect="emulated", hardware="A100", max_model_len=8192, kv_capacity_tokens=100_000,
    block_size=16, max_num_seqs=8,
)  # fmt: skip
HEARTBEAT = WorkerHeartbeat(
    worker="w1", incarnation="i1", address="h:1", wire_version=WIRE_VERSION, pool="m", aliases=(), engines=(), queued=0,
    queued_tokens=0, running=0, max_queued=100, max_queued_tokens=10**6, backlog_s=0.0, draining=False,
)  # fmt: skip


def engine_info(engine: str = "e1", **changes: Any) -> EngineInfo:
    """An emulated engine that is up, with eight places."""
    return replace(ENGINE, engine=engine, **changes)


def worker_heartbeat(worker: str = "w1", **changes: Any) -> WorkerHeartbeat:
    """The heartbeat of a worker that has no engine and nothing to do."""
    return replace(HEARTBEAT, worker=worker, **changes)
