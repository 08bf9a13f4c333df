"""What gateways tell one another, so that the limits and promises of a tenant hold over all of them together, and each
knows what the others sent where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """The use of one tenant at one gateway. `requests` and `tokens` are taken from its rate limits since the gateway
    started; tokens may fall, when a prompt was estimated too long. `requests_left` and `tokens_left` are what the
    gateway believes that all of them may still take, negative after an overdraft. `demand` is requests per s that its
    clients sent lately, refused ones included. `most_in_flight`, `most_waiting`: how many of them the gateway may have
    until it reports again; 0 without a limit."""

    tenant: str
    requests: float
    tokens: float
    requests_left: float
    tokens_left: float
    in_flight: int
    waiting: int
    most_in_flight: int
    most_waiting: int
    demand: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldPromise:
    """A refused request, known by a digest of its content, that may come back in `due_s` seconds, reckoned from the
    sending of the report."""

    content: str
    due_s: float


@dataclass(frozen=True, slots=True)
class HeldPrefixes:
    """Nodes of prompts that a worker was sent, and the tokens that each adds to the node before it."""

    worker: str
    nodes: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStage:
    """The last stage of a job that came to a gateway, by which another finds the job of the next one. `node` is the end
    of its prompt, `thread` and `turn` are as in `PrefixChain`; 0: there is none. `stages`: how many have come. No
    tenant is told: all three are digests under the key of one."""

    job: str
    node: int
    thread: int
    turn: int
    stages: int
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UseReport:
    """`incarnation` changes with each start of the gateway, from which `uses` count. `promised` and `redeemed` (digests
    of content) happened since its last report, `held` was sent and `stages` came since. Tenants of whom nothing is used
    or asked any more are left out."""

    gateway: str
    incarnation: str
    uses: tuple[TenantUse, ...]
    promised: tuple[ToldPromise, ...]
    redeemed: tuple[str, ...]
    held: tuple[HeldPrefixes, ...] = ()
    stages: tuple[ToldStage, ...] = ()
