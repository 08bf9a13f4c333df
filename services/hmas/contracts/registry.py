"""Who is there: the worker's heartbeat."""

from dataclasses import dataclass

WIRE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    engine: str
    up: bool
    kind: str  # vllm | sglang | openai | emulated
    hardware: str
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """Every second. `incarnation` changes at each start of the process, so a restart is told from a pause.

    `backlog_s` is predicted engine time of all the worker holds (queued and running), divided by its engines.
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
    """A worker told who it is and how much it holds."""

    heartbeat: WorkerHeartbeat
