"""The heartbeat by which a worker makes itself and its engines known, and the paths of an engine's API."""

from dataclasses import dataclass

from hmas.contracts.control import MIXED, Layout

WIRE_VERSION = 2
MAX_WORKERS = 1024  # a gateway keeps those heard of last

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
USUAL_PATHS = (CHAT_PATH, COMPLETIONS_PATH)  # of any engine that does not tell what it serves
# All that a gateway may request of an engine, if the engine serves it.
API_PATHS = (
    *USUAL_PATHS,
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/tokenize",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """One engine of a worker. `endpoint` is the URL under which gateways reach it. `model` names the model by which
    its costs can be told, such as the one that the pool's name is an alias of; empty: that is the pool's name.
    `paths`: those of `API_PATHS` that it serves, none while this is not known. `adapters`: the LoRA adapters that it
    lists, each a model of its own. `epoch`: that of the lease by which the worker has the engine; 0 for one that the
    worker was configured with."""

    engine: str
    up: bool
    kind: str  # vllm | sglang | openai | emulated
    hardware: str
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    endpoint: str = ""
    model: str = ""
    paths: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """A worker's message every second: what it is, its engines and its load. `incarnation` changes at each start of the
    process, so that a restart is distinguished from a pause. `draining`: it takes no requests, because it shuts down or
    has none of the engines that it looks for.

    `observes`: it records what it would grant where gateways only observe: `observed_grants` so far, which would have
    waited `observed_wait_s` seconds in the mean of the last ones.

    `backlog_s` is the predicted time, in s, that all queued and running requests need alone, over the speed that is
    assumed of full engines, by which gateways compare workers.
    `layout` is the one that the worker has in force.
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
    observes: bool = False
    observed_grants: int = 0
    observed_wait_s: float = 0.0
    layout: Layout = MIXED


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A worker's heartbeat arrived."""

    heartbeat: WorkerHeartbeat
