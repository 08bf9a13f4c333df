"""Events and effects of the gateway's agent, which decides about routing, limits and the settlement of every request.

The shell parses HTTP, keeps bodies and sockets by request id, and relays the bytes of answers. The events of the
gateway's other pure part are in `questions.py`.
"""

from dataclasses import dataclass, field

from hmas.contracts.execution import GatewayMessage, Grant, WorkerMessage
from hmas.contracts.job import StageLinked
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived
from hmas.contracts.request import Annotation, Request, TaskType
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.use import UseReport
from hmas.contracts.views import VShort

# --- events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueTurn:
    """When a waiting request has its turn: its number by arrival among those that wait for its pool, 1 for the next
    one; how many these are; and the seconds that it may still wait. The pool's order may be another one: this is an
    estimate."""

    number: int
    queued: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """The limits of one tenant; None means unlimited."""

    tenant: str
    requests_per_min: float | None = None
    tokens_per_min: float | None = None
    max_in_flight: int | None = None
    max_queued: int | None = None


@dataclass(frozen=True, slots=True)
class ClassWeight:
    """What a request of a task type is worth to be on time, relative to 1 (H-MAS Eq. 1)."""

    task: TaskType
    weight: float


@dataclass(frozen=True, slots=True)
class TenantsChanged:
    """The tenants file was read: the limits of all tenants, and the weights of the task types that it names."""

    limits: tuple[TenantLimits, ...]
    classes: tuple[ClassWeight, ...] = ()


@dataclass(frozen=True, slots=True)
class Volume:
    """What several requests ask for together: their number, the tokens of their prompts and the bytes of their
    bodies."""

    requests: int = 0
    prompt_tokens: int = 0
    body_bytes: int = 0


NO_VOLUME = Volume()


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A client sent a request. `content` identifies what the tenant sent, so that the same request is recognised when
    it is sent again; it is empty where that makes no difference. `body_bytes` is the size of the body that the shell
    keeps until the first token. `job` is what the client calls the job that the request belongs to, or empty;
    `job_budget_s` the seconds that it allows for the whole job, None if it states none.

    A body that asks for several answers is received as one request for each. With the first one, `siblings` is what the
    others ask for, so that the tenant's limits are asked for all at once, before any other is made; each other one is
    `admitted`, which says that they were asked."""

    request: Request
    content: str = ""
    body_bytes: int = 0
    job: str = ""
    job_budget_s: float | None = None
    siblings: Volume = NO_VOLUME
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class RequestAnnotated:
    """Cognition answered for a request. `annotation.tags.slo` is the SLO by which the request is judged."""

    request_id: str
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """The client closed its connection before its answer ended. `output_tokens`: those that were relayed to it, which
    may be more than were last reported."""

    request_id: str
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class KeysEnded:
    """The API keys of these requests were revoked or have expired, and their requests are to end."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The stream to a worker was opened (true), or it ended or fell silent (false). An open stream first gets this
    gateway's snapshot: the effects of this event, in their order. `silent_s`: how long nothing had been heard of the
    worker when the stream ended, in s."""

    worker: str
    connected: bool
    silent_s: float = 0.0


@dataclass(frozen=True, slots=True)
class FromWorker:
    """A message of a worker. Instants in it are already on this host's clock."""

    worker: str
    message: WorkerMessage


@dataclass(frozen=True, slots=True)
class FirstTokenRelayed:
    """The first token of a streamed answer was relayed to the client. `run` is that of the `StartRun`."""

    request_id: str
    run: int


@dataclass(frozen=True, slots=True)
class PromptComputed:
    """The first engine of a split run has computed the prompt, of which it had `cached_tokens` in its cache (None: it
    did not say). `run` is that of the `StartRun`."""

    request_id: str
    run: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RunHandedOver:
    """A proxy carries this run out: it cannot move any more, and nothing of its answer is seen before its end."""

    request_id: str
    run: int


@dataclass(frozen=True, slots=True)
class RunsProgressed:
    """Pairs (request id, output tokens so far) of the requests that run and have a token, once per period rather than
    once per token."""

    output_tokens: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """An engine's answer ended. `run` is that of the `StartRun`; a run that was stopped reports no end.

    `tpot_s` is the time per output token after the first, in s, as it was relayed. `output_tokens` None: nobody counted
    them, because the answer did not come through the gateway. For the other fields see
    `hmas.contracts.execution.Ended`; `retryable` is false once a token was relayed.
    """

    request_id: str
    run: int
    outcome: Outcome
    message: str = ""
    status: int = 0
    output_tokens: int | None = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    tpot_s: float = 0.0
    retryable: bool = False
    busy: bool = False
    unreached: bool = False
    at_prefill: bool = False
    given_up: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class ViewReceived:
    view: VShort


@dataclass(frozen=True, slots=True)
class UseReported:
    """A gateway reported what its tenants use; this one hears its own reports, too."""

    report: UseReport


@dataclass(frozen=True, slots=True)
class GatewayTicked:
    """Time has passed: telemetry, time-outs and moves of requests to other workers may be due."""


@dataclass(frozen=True, slots=True)
class GatewayDraining:
    """The gateway is shutting down: it takes no new requests, and those it accepted go on."""


@dataclass(frozen=True, slots=True)
class GatewayDrainExpired:
    """The grace time of the shutdown is over: the remaining requests are cancelled and settled."""


GatewayEvent = (
    TenantsChanged
    | RequestReceived
    | RequestAnnotated
    | ClientLeft
    | KeysEnded
    | HeartbeatReceived
    | StreamChanged
    | FromWorker
    | PromptComputed
    | FirstTokenRelayed
    | RunHandedOver
    | RunsProgressed
    | RunEnded
    | ViewReceived
    | UseReported
    | GatewayTicked
    | GatewayDraining
    | GatewayDrainExpired
)

# --- effects -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToWorker:
    """Send a message to a worker; it is dropped if the worker's stream is closed."""

    worker: str
    message: GatewayMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRun:
    """Send a request's body to an engine, and relay the answer. `run` counts all runs of this gateway.

    `grant` is what the worker said, None if the gateway places the request itself because the engine's worker is silent
    (bypass), or because it only observes (`observed`). If the engine cannot be used, `RunEnded` with `unreached`
    follows.
    """

    request_id: str
    run: int
    worker: str
    engine: str
    grant: Grant | None
    observed: bool = False


@dataclass(frozen=True, slots=True)
class GoOn:
    """Send a split request, whose prompt is computed, to `engine` of `worker` for its answer. In `due_in_s` seconds its
    first token is due, None where nobody says so."""

    request_id: str
    run: int
    worker: str
    engine: str
    due_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class NoteGrant:
    """Record that a worker would have granted a request now, which the gateway has placed itself because it only
    observes. The request may have ended."""

    worker: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class StopRun:
    """Close the connection to the engine, by which it stops the request. No `RunEnded` follows. `stalled` says why, if
    the engine is to blame; otherwise it is empty."""

    request_id: str
    run: int
    stalled: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Refuse a request at its arrival: answer with the error object of `outcome`. The agent has already settled it.
    Times are in s; None means that nothing can be said."""

    request_id: str
    outcome: Outcome
    message: str
    retry_after_s: float | None
    predicted_ttft_s: float | None
    estimated_wait_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """End the response of a request that was accepted; if `outcome` is not FINISHED, with an error event or object."""

    request_id: str
    outcome: Outcome
    message: str
    output_tokens: int
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class PublishGatewayTelemetry:
    telemetry: GatewayTelemetry


@dataclass(frozen=True, slots=True)
class PublishUse:
    report: UseReport


@dataclass(frozen=True, slots=True)
class RouteChosen:
    """A request with a known prompt was sent to `worker`. `workers` are those that were compared, the cheapest first.
    What it would cost at each, in s: the wait before it, its prefill without the `cached_tokens` that the worker was
    taken to hold, and what that prefill and slower steps cost others."""

    request_id: str
    worker: str
    workers: tuple[str, ...]
    wait_s: tuple[float, ...]
    prefill_s: tuple[float, ...]
    load_s: tuple[float, ...]
    cached_tokens: tuple[int, ...]


GatewayEffect = (
    ToWorker
    | StartRun
    | GoOn
    | NoteGrant
    | StopRun
    | Refuse
    | Settle
    | PublishGatewayTelemetry
    | PublishUse
    | StageLinked
    | RouteChosen
)
