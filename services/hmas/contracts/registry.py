"""The heartbeat by which a worker makes itself and its engines known."""

from dataclasses import dataclass

WIRE_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """One engine of a worker. `endpoint` is the URL under which gateways reach it."""

    engine: str
    up: bool
    kind: str  # vllm | sglang | openai | emulated
    hardware: str
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    endpoint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """A worker's message every second: what it is, its engines and its load. `incarnation` changes at each start of
    the process, so that a restart is distinguished from a pause.

    `backlog_s` is the predicted engine time, in s, of all queued and running requests over the number of engines.
    """

    worker: str
    incarnation: str
    address: str  # host:port of its Execution service
    wire_version: int
    pool: str  # model name
    aliases: tuple[str, ...]
    engines: tuple[EngineInfo, ...]
    queued: int
    queued_tokens: int
    running: int
    max_queued: int
    max_queued_tokens: int
    backlog_s: float
    draining: bool


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A worker's heartbeat arrived."""

    heartbeat: WorkerHeartbeat
