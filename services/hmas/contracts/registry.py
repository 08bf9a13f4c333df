"""The heartbeat by which a worker makes itself and its engines known, and the paths of an engine's API."""

from dataclasses import dataclass, field

from hmas.contracts.control import MIXED, Layout
from hmas.contracts.engine_kind import EngineKind

WIRE_VERSION = 3
SGLANG = "sglang"  # how engines hand KV over that SGLang's --disaggregation-mode starts
MAX_HEARD_WORKERS = 1024  # a gateway keeps those heard of last

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
    """One engine of a worker."""

    engine: str
    up: bool
    dialect: str  # vllm | sglang | openai | emulated
    hardware: str
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    max_num_seqs: int
    endpoint: str = ""  # URL under which gateways reach it
    # The model by which its costs can be told, such as the one that the pool's name is an alias of; empty: the pool's
    # name.
    model: str = ""
    paths: tuple[str, ...] = ()  # those of `API_PATHS` that it serves, none while this is not known
    adapters: tuple[str, ...] = ()  # the LoRA adapters that it lists, each a model of its own
    epoch: int = 0  # that of the lease by which the worker has the engine; 0 for one that it was configured with
    # How it hands KV over to others of the same word, empty if it does not: nixl-pull, nixl-push,
    # sglang
    kv: str = field(default="", repr=False)
    role: str = field(default="", repr=False)  # what its operator means it for: prefill, decode, or both if empty
    # It has left a run without a token for too long, and given none since; `EngineSuspected` logs when this changes.
    suspected: bool = field(default=False, repr=False)
    # By its own metrics it is asleep, at that level of vLLM's: 0 keeps its prefix cache, 1 and 2 drop it; None: awake.
    sleep_level: int | None = field(default=None, repr=False)
    # Of what hands its KV over, which only equal ones can: vLLM's own version, or SGLang's transfer backend
    kv_version: str = field(default="", repr=False)
    # The port at which others ask for the KV of the prompts that it computes, if `needs_partner`; 0: not known
    bootstrap_port: int = field(default=0, repr=False)

    @property
    def serves(self) -> bool:
        """Whether it is up and awake, so that requests may run there."""
        return self.up and self.sleep_level is None

    @property
    def needs_partner(self) -> bool:
        """Whether it serves no request alone: it computes prompts for another engine or answers what another one has
        computed, as its role says, and both get a request at once."""
        return self.kv == SGLANG

    @property
    def engine_kind(self) -> EngineKind:
        """The kind by which costs are predicted for it."""
        return EngineKind(self.model, self.hardware)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHeartbeat:
    """A worker's message every second: what it is, its engines and its load."""

    worker: str
    incarnation: str  # changes at each start of the process, so that a restart is distinguished from a pause
    address: str  # host:port at which it takes gateways' streams
    wire_version: int
    pool: str  # model name
    aliases: tuple[str, ...]
    engines: tuple[EngineInfo, ...]
    queued: int
    queued_tokens: int
    running: int
    max_queued: int
    max_queued_tokens: int
    # Predicted time, in s, that all queued and running requests need alone, over the speed that is assumed of full
    # engines, by which gateways compare workers.
    backlog_s: float
    draining: bool  # it takes no requests, because it shuts down or has none of the engines that it looks for
    observes: bool = False  # it records what it would grant where gateways only observe
    observed_grants: int = 0  # what it would have granted so far
    observed_wait_s: float = 0.0  # s that the last of these would have waited in the mean
    layout: Layout = MIXED  # the one that the worker has in force


@dataclass(frozen=True, slots=True)
class HeartbeatReceived:
    """A worker's heartbeat arrived."""

    heartbeat: WorkerHeartbeat
