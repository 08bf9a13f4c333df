"""The control values that workers obey: the topology (from meta), the control tuple (from Statera) and an operator's
pin; and the audit records of these decisions."""

from dataclasses import dataclass, field
from enum import StrEnum


class TopologyName(StrEnum):
    """The names of all topologies, H-MAS's set Omega (App. C.2)."""

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
SAFE_TOPOLOGY = TopologyName.FCFS  # used during a bypass, and by a worker whose control values have expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Parameters of the topologies that come with a decision (h_t, H-MAS App. C.1); each topology reads its own.

    - `lane_gate_s` (two_lane): requests with at most this much predicted service time, in s, go to the fast lane; None
      means the median of the queue.
    - `fast_weight` (two_lane): share of dispatches that the fast lane gets while both lanes wait, in (0, 1).
    - `quantum_tokens`: service quantum of RR, CFS and MLFQ, in tokens.
    - `by_tokens`: if true, MaxOnTime keeps the most service gain on time (ESG, H-MAS Eq. 6) instead of the most
      requests.
    - `alpha_low`, `alpha_high`: range in which Hybrid's alpha, the weight of predicted work, may move; at 0 only the
      deadline counts (Niyama Eq. 4 and 5).
    """

    lane_gate_s: float | None = None
    fast_weight: float = 0.7
    quantum_tokens: int = 2048
    by_tokens: bool = False
    alpha_low: float = 0.0
    alpha_high: float = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDecision:
    """The topology that a pool's workers are to use for `valid_for_s` seconds, with its hints. `bypass` is xi: FCFS and
    unbounded controls until it is cleared. `epoch` and `seq` order decisions; `selector` says who made this one."""

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
    """The controls of one engine, with which a worker limits it.

    `n_run` is the most sequences in flight on the engine, `b_token` the decode tokens per engine step. In every cycle
    the worker moves its own B_token in [b_min, b_max] by `gain_b` times the distance of the utilisation from
    [u_low, u_high] (H-MAS Algorithm 2, line 11).
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
    """The fence's quantile q_{1-eps}(D_b) of the length error, in output tokens, for prompts of at most `prompt_upto`
    tokens that are too long for the bucket before it (H-MAS Eq. 4)."""

    prompt_upto: int
    quantile: float


@dataclass(frozen=True, slots=True)
class Fence:
    """The bounds on output lengths by which workers reserve KV memory: l_upper = l_pred + the quantile of the prompt's
    bucket. Buckets ascend by `prompt_upto`.

    `version` is the version of the predictor whose errors were calibrated. `rolling_upper` is a conservative output
    length, in tokens, for a running request that outgrew its bound (App. C.2).
    """

    version: str
    buckets: tuple[FenceBucket, ...] = ()
    rolling_upper: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTuple:
    """What Statera sends to one worker (C_t, H-MAS §3.1.1): controls of each engine, and the fence. It holds for
    `valid_for_s` seconds; `epoch` and `seq` order tuples."""

    worker: str
    engines: tuple[EngineControl, ...]
    fence: Fence
    epoch: int
    seq: int
    valid_for_s: float
    frozen: bool = False  # true during a bypass: Statera changes no set-point


@dataclass(frozen=True, slots=True)
class Pin:
    """An operator's choice of a pool's topology, which outranks every selector and guard. `topology` None lifts it.
    `by` names the operator."""

    pool: str
    topology: TopologyName | None
    hints: Hints = field(default_factory=Hints)
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision of meta or Statera, with its reason and the view that it was taken on (as JSON)."""

    source: str  # meta | statera | qos
    pool: str
    kind: str  # decided | rejected | rolled_back | bypass_on | bypass_off | pinned | unpinned | tuple
    decision: str
    reason: str
    selector: str
    view_json: str
    epoch: int
    seq: int


# --- events: a control value arrived ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopologyReceived:
    """A topology decision arrived. `aged_s` is how long ago it was sent, in s: 0 if it came from its publisher, its age
    in the control bucket if it was read from there."""

    decision: TopologyDecision
    aged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TupleReceived:
    """A control tuple arrived. `aged_s` is how long ago it was sent, in s."""

    control: ControlTuple
    aged_s: float = 0.0
