"""What a worker tells of its queue when it is asked: what waits, in the order in which it would be served."""

from dataclasses import dataclass

MAX_ROWS = 500  # requests in one order of a reply
MAX_WHY_CHARS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuery:
    """Asks `worker` for the first `limit` requests of its queue, at most `MAX_ROWS`. `topology`: also return
    the order that this one would give; empty: only the order in force."""

    worker: str
    topology: str = ""
    limit: int = MAX_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRow:
    """A request that waits. `service_s`: its predicted service, as if it ran alone (T_tot). `start_s`: when it starts,
    predicted as the seconds that the work before it takes at the speed measured lately, from now; `slack_s`: how much
    later it could start and still be on time, negative for one that will miss its SLO. Both are None while nothing can
    be predicted, because no engine is up. `known`: cognition's estimates, not the worker's own, are the base. `lane`:
    the pace class that it waits in. `why`: what put it in this place, in words."""

    request_id: str
    tenant: str
    lane: int
    prompt_tokens: int
    predicted_output_tokens: float
    waited_s: float
    service_s: float
    start_s: float | None
    slack_s: float | None
    relegated: bool
    known: bool
    why: str


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """The first requests of the queue in the order of a topology."""

    topology: str
    rows: tuple[QueuedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReply:
    """A worker's queue. `waiting`: all requests that wait, of which `parked` cannot be granted now, because their
    gateways could not carry it out, or wait for their tags; `orders`: the one in force, then the one that was asked
    for, both of the same instant, `age_s` ago. They are empty if `ordered` is false: more wait than the worker puts in
    order for those who look on. `relegated` and `late` are of all in the order in force, not of the rows alone."""

    worker: str
    topology: str
    waiting: int
    parked: int
    relegated: int
    late: int
    running: int
    age_s: float
    ordered: bool
    orders: tuple[QueueOrder, ...]
