"""The messages between gateways and workers: the worker grants, the gateway carries out.

A worker decides when a request may run, and on which of its engines; the gateway sends the body there and relays the
answer. The gateway's ledger is the one truth about a request, and the worker's books are rebuilt from its gateways at
any time: when a stream opens, the gateway sends its requests again (`Submit`, `Adopt`) and ends with `Synced`. Frames
are not numbered, acknowledged or resumed; a message that is sent twice does nothing the second time.

Instants are on the receiver's own clock by the time an agent sees them: `hmas.wire.execution` converts them.
"""

from dataclasses import dataclass, field

from hmas.contracts.outcome import Outcome
from hmas.contracts.pair_forecast import PairDecision
from hmas.contracts.request import Annotation, Request

# --- from a gateway to a worker -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """A request waits for a grant. `attempt` counts its submissions. `promised`: it was refused before with a promise
    and came again at the promised time. `again`: it was submitted before, to this worker or another, so that views must
    not count it as one more arrival."""

    request: Request
    attempt: int
    promised: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Annotate:
    request_id: str
    attempt: int
    annotation: Annotation


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The request no longer waits for this worker. There is no answer; a grant that crosses it is declined."""

    request_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """The gateway runs this request on the worker's `engine`: the worker is to count it there. It is sent while a
    stream opens. `grant` is the number under which it was granted, 0 if the gateway placed it itself while the worker
    was silent. `first_token_s` is None before the first token. `prefill` is that of the `Grant`, and
    `prefilled` says whether that engine has computed the prompt."""

    request: Request
    attempt: int
    annotation: Annotation | None
    engine: str
    grant: int
    output_tokens: int
    granted_s: float
    first_token_s: float | None
    prefill: str = field(default="", repr=False)
    prefilled: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True)
class Synced:
    """The snapshot is complete: what the worker has from this gateway and was not named in it no longer exists."""


@dataclass(frozen=True, slots=True)
class Started:
    """The gateway accepted the grant and has sent the request to its engine."""

    request_id: str
    grant: int


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The engine that computes the prompt of a split request has done so, and keeps its KV. `cached_tokens`: those that
    it had in its cache, None if it did not say."""

    request_id: str
    grant: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class FirstToken:
    """The first token of a streamed answer came; from now on the request cannot run anywhere else."""

    request_id: str
    grant: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Output tokens so far of running requests, in the order of `request_ids`."""

    request_ids: tuple[str, ...]
    output_tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A granted request no longer runs on its engine."""

    request_id: str
    grant: int
    outcome: Outcome
    message: str = ""
    status: int = 0  # the engine's HTTP status, 0 if none came
    output_tokens: int = 0
    prompt_tokens: int | None = None  # the engine's own count, None if it gave none
    cached_tokens: int | None = None  # the same, of those of the prompt that the engine had in its cache
    # No token was relayed and another engine may serve it, so that the request waits at this worker again, under the
    # same attempt, until the worker grants or refuses it. Otherwise the gateway has settled it.
    retryable: bool = False
    busy: bool = False  # the engine has no room now and may have later
    unreached: bool = False  # the gateway could not connect to the engine, which says nothing about the engine itself
    # The gateway gave the run up because the engine had given it no token for far longer than it usually takes.
    stalled: bool = False
    at_prefill: bool = field(default=False, repr=False)  # the engine at fault is the one that computes the prompt
    given_up: bool = field(default=False, repr=False)  # the engine itself ended it early, as one that is put to sleep


@dataclass(frozen=True, slots=True)
class Declined:
    """The gateway does not carry this grant out: the request has ended, was withdrawn, or runs elsewhere. Nothing was
    sent to the engine."""

    request_id: str
    grant: int


GatewayMessage = (
    Submit | Annotate | Withdraw | Adopt | Synced | Started | Prefilled | FirstToken | Progress | Ended | Declined
)

# --- from a worker to a gateway -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened to a request in the worker's queue until its grant, for `hmas why`."""

    engine: str
    topology: str
    queued_s: float  # from its arrival at the worker
    queue_length: int  # at arrival
    overtaken: int  # number of requests that arrived later and were granted earlier
    switches: int  # topology switches while it waited
    upper_output_tokens: float  # the length bound of admission
    relegated: bool
    promised_tokens: int = 0  # of its prompt that the engine was taken to have in its cache
    pace_class: str = ""  # its TPOT bounds in words; empty where the layout is mixed
    asleep_s: float = field(default=0.0, repr=False)  # for how long only engines that were asleep could have taken it
    # For how long it, or the first one of its lane, did not fit the memory of an engine with a free slot.
    memory_s: float = field(default=0.0, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Run a request on `engine`. The worker's shell adds `priority` and `plugin`.

    With `prefill`, which names another engine, the request is split: that one computes the prompt and keeps its KV, and
    `engine` reads it and answers, once the worker says `Proceed`. With `bootstrap_port` as well, both get the request
    at once, and `engine` asks there for the KV. `choice`: what was expected of it, where a worker chooses between one
    engine and two."""

    request_id: str
    attempt: int
    grant: int  # a number that no other grant of this worker process has
    engine: str
    urgency: float  # its key in the active order (lower first), for engines that reorder
    # Time per output token that it may be slowed down to, in s, for engines that limit prefill to keep decoding in
    # pace; None if only its last token is judged.
    pace_s: float | None
    timeline: Timeline
    priority: int | None = None  # in the engine's own convention, to be written into the body
    plugin: bool = False  # the engine reads urgency and pace from the body
    prefill: str = field(default="", repr=False)
    choice: PairDecision | None = field(default=None, repr=False)
    bootstrap_port: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Proceed:
    """The prompt of a split request is computed: `engine` is to answer it now. If that is the one which computed it,
    nothing is read from anywhere. In `due_in_s` seconds its first token is due, None if it is no longer hoped for."""

    request_id: str
    grant: int
    engine: str
    due_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Give a granted request back if none of its tokens has been relayed: close its connection to the engine and answer
    `Ended`, retryable. The slot counts as taken until then."""

    request_id: str
    grant: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The worker does not serve a request that waits for a grant. `retry_after_s` None: a retry cannot help."""

    request_id: str
    attempt: int
    outcome: Outcome
    message: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class EngineShare:
    """How many sequences this gateway may run on an engine by itself, while the engine's worker is silent.

    `generating`: whether the engine's own counters of tokens, or its use of memory, have changed since the last report;
    None: it has no counters, or the worker could not read them. `asleep`: somebody has put it to sleep; what runs there
    gets no token, and the gateway runs nothing more there."""

    engine: str
    slots: int
    generating: bool | None = None
    asleep: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The worker's load between two heartbeats. The fields up to `draining` are those of `WorkerHeartbeat`; `shares`
    are meant for the gateway that gets the message. `step_s`: the time of a step on the quickest of its engines, in s,
    whatever class that serves; 0 if one of them is idle or unknown, or all are suspected."""

    queued: int
    queued_tokens: int
    running: int
    backlog_s: float
    draining: bool
    shares: tuple[EngineShare, ...] = ()
    step_s: float = 0.0


WorkerMessage = Grant | Proceed | Stop | Refusal | Load
