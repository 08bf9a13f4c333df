"""What the control layer sends down: the topology (meta), the control tuple (Statera), an operator's pin."""

from dataclasses import dataclass, field
from enum import StrEnum


class TopologyName(StrEnum):
    """Omega, the pool of queue topologies (H-MAS App. C.2)."""

    FCFS = "fcfs"
    EDF = "edf"
    LLF = "llf"
    SJF = "sjf"
    SRTF = "srtf"
    TWO_LANE = "two_lane"
    WFQ = "wfq"
    STRIDE = "stride"
    LOTTERY = "lottery"
    CFS = "cfs"
    RR = "rr"
    MLFQ = "mlfq"
    PRIORITY = "priority"
    MAX_ON_TIME = "max_on_time"
    HYBRID = "hybrid"


INITIAL_TOPOLOGY = TopologyName.MAX_ON_TIME  # the default profile; H-MAS Algorithm 1 starts with SJF
SAFE_TOPOLOGY = TopologyName.FCFS  # bypass, and a worker whose control ran out


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """h_t: a few bounded knobs of a topology (H-MAS App. C.1).

    `lane_gate_s`: requests whose T_tot is at most this go to the fast lane (None: the median of the queue).
    `fast_weight`: share of dispatches the fast lane gets while both lanes wait, in (0, 1).
    `quantum_tokens`: service quantum of RR, CFS and MLFQ.
    `by_tokens`: MaxOnTime keeps the most service gain in time (ESG, H-MAS Eq. 6) instead of the most requests.
    `alpha_low`, `alpha_high`: where Hybrid's alpha may move; 0: the deadline alone counts (Niyama Eq. 4 and 5).
    """

    lane_gate_s: float | None = None
    fast_weight: float = 0.7
    quantum_tokens: int = 2048
    by_tokens: bool = False
    alpha_low: float = 0.0
    alpha_high: float = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDecision:
    """The active topology of a pool. `bypass` is xi: FCFS and unbounded controls until cleared."""

    pool: str
    topology: TopologyName
    hints: Hints
    bypass: bool
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineControl:
    """C_t for one engine: set-points, and what the worker's inner loop needs to regulate around them.

    `n_run`: most sequences in flight on the engine. `b_token`: decode tokens per engine step. The inner loop moves
    B_token in [b_min, b_max] by `gain_b` times the utilisation error outside [u_low, u_high] (H-MAS Algorithm 2,
    line 11).
    """

    engine: str
    n_run: int
    b_token: int
    b_min: int
    b_max: int
    gain_b: float
    u_low: float
    u_high: float


@dataclass(frozen=True, slots=True)
class FenceBucket:
    """q_{1-eps}(D_b) for prompts of at most `prompt_upto` tokens, in output tokens (H-MAS Eq. 4)."""

    prompt_upto: int
    quantile: float


@dataclass(frozen=True, slots=True)
class Fence:
    """The conformal fence: one quantile a bucket, ascending by `prompt_upto`; l_upper = l_pred + q_b.

    `version` is the predictor's version the errors belong to. `rolling_upper` is the conservative estimate for a
    running request that outgrew its bound (App. C.2).
    """

    version: str
    buckets: tuple[FenceBucket, ...] = ()
    rolling_upper: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTuple:
    """C_t of one worker, an entry per engine (H-MAS §3.1.1)."""

    worker: str
    engines: tuple[EngineControl, ...]
    fence: Fence
    epoch: int
    seq: int
    valid_for_s: float
    frozen: bool = False  # Statera's integrators stand still (bypass)


@dataclass(frozen=True, slots=True)
class Pin:
    """An operator's override; outranks every selector. `topology` None lifts it."""

    pool: str
    topology: TopologyName | None
    hints: Hints = field(default_factory=Hints)
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision with its reason and the view it was taken on."""

    source: str  # meta | statera | qos
    pool: str
    kind: str  # decided | rejected | rolled_back | bypass_on | bypass_off | pinned | unpinned | tuple
    decision: str
    reason: str
    selector: str
    view_json: str
    epoch: int
    seq: int


# --- events: it arrived ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopologyReceived:
    """`aged_s`: how long ago it was sent (0 when it came from the publisher, the server's age from the bucket)."""

    decision: TopologyDecision
    aged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TupleReceived:
    control: ControlTuple
    aged_s: float = 0.0
