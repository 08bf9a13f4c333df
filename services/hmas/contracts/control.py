"""The control values that workers obey: topology and layout (from meta), the control tuple (from Statera) and an
operator's pin; and the audit records of these decisions."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class TopologyName(StrEnum):
    """The name of a topology, of H-MAS's set Omega (App. C.2).

    The members are the built-in ones. Packages add others (docs/plugins.md), so `TopologyName(value)` takes any name of
    lower-case letters, digits and underscores, at most 40. Such a name is equal to itself and not a member, so names
    are compared by `==`. Whether a topology of that name exists is known at the edges (`hmas.entry_points`).
    """

    FCFS = "fcfs"
    EDF = "edf"
    SJF = "sjf"
    MAESTRO = "maestro"
    TWO_LANE = "two_lane"
    WFQ = "wfq"
    MAX_ON_TIME = "max_on_time"
    HYBRID = "hybrid"

    @classmethod
    def _missing_(cls, value: object) -> "TopologyName | None":
        if not isinstance(value, str) or _NAME.fullmatch(value) is None:
            return None
        added = str.__new__(cls, value)
        added._name_, added._value_ = value.upper(), value
        return added


INITIAL_TOPOLOGY = TopologyName.MAX_ON_TIME  # the default profile; H-MAS Algorithm 1 starts with SJF
MAX_EPOCH = 2**40  # epochs are below: one a second for 30,000 years
MAX_VALID_FOR_S = 60.0  # no control holds longer without being renewed
SAFE_TOPOLOGY = TopologyName.FCFS  # used during a bypass, and by a worker whose control values have expired


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Parameters of the topologies that come with a decision (h_t, H-MAS App. C.1); each topology reads its own.

    - `lane_gate_s` (two_lane): requests with at most this much predicted service time, in s, go to the fast lane; None
      means the median of the queue.
    - `fast_weight` (two_lane): share of dispatches that the fast lane gets while both lanes wait, in (0, 1).
    - `fast_slots` (two_lane): share of the engines' slots that are the fast lane's own, above 0 and at most 1, the
      others being the slow one's, at least one each; None lets both lanes use all.
    - `quantum_tokens`: service that a tenant gets in one turn, in tokens; for orders of packages, such as round robin.
    - `by_tokens`: if true, MaxOnTime keeps the most service gain on time (ESG, H-MAS Eq. 6) instead of the most
      requests.
    - `slack_share`: share, 0 to 1, of the slack of the requests before it that MaxOnTime lets a shorter request take by
      going first, where arrivals do not come in bursts; at 0, and with `by_tokens`, the order is by deadline alone.
    - `alpha_low`, `alpha_high`: range in which Hybrid's alpha, the weight of predicted work, may move; at 0 only the
      deadline counts (Niyama Eq. 4 and 5).
    """

    lane_gate_s: float | None = None
    fast_weight: float = 0.7
    quantum_tokens: int = 2048
    by_tokens: bool = False
    alpha_low: float = 0.0
    alpha_high: float = 64.0
    slack_share: float = 0.5
    fast_slots: float | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The shape of a layout: how a pool is split into pace classes.

    `cuts_s` are bounds on TPOT SLOs in s, strictly ascending: class i has the requests whose TPOT SLO is above the cut
    before it and at most `cuts_s[i]`, and the last class those above every cut. `engines` says how many engines each
    class gets, so that it is one longer than `cuts_s`. Both are empty where all requests share all engines (mixed).
    """

    cuts_s: tuple[float, ...] = ()
    engines: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineClass:
    """The pace class of the engine at a place, which names its worker and the engine."""

    place: str
    pace_class: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A split in force: its cuts, and the class of each engine. An engine that is not named belongs to the last
    class. Without cuts (`MIXED`) all requests share all engines."""

    cuts_s: tuple[float, ...] = ()
    engines: tuple[EngineClass, ...] = ()


MIXED = Layout()  # the safe default
MAX_CUTS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyDecision:
    """The topology that a pool's workers are to use for `valid_for_s` seconds, with its hints. `bypass` is xi: FCFS,
    unbounded controls and a mixed layout until it is cleared. `epoch` and `seq` order decisions; `selector` says who
    made this one."""

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
class LayoutDecision:
    """The layout by which a pool's workers are to share its engines for `valid_for_s` seconds; afterwards, and under
    bypass, the engines are mixed. `epoch` and `seq` order decisions about layouts; `selector` says who made this
    one."""

    pool: str
    layout: Layout
    epoch: int
    seq: int
    valid_for_s: float
    reason: str
    selector: str


@dataclass(frozen=True, slots=True)
class StepTime:
    """What a step of one engine takes, in s: `base_s` whatever runs, `sequence_s` for each sequence, which includes the
    prompts that are computed for those that take its place, and `context_s` for each token of context."""

    base_s: float
    sequence_s: float
    context_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineControl:
    """The controls of one engine, with which a worker limits it.

    `n_run` is the most sequences in flight on the engine, `b_token` the decode tokens per engine step. In every cycle
    the worker moves its own B_token in [b_min, b_max] by `gain_b` times the distance of the utilisation from
    [u_low, u_high] (H-MAS Algorithm 2, line 11). `step`: it grants no more on the engine than steps have time for that
    cost so much; None: as much as the other limits allow.
    """

    engine: str
    n_run: int
    b_token: int
    b_min: int
    b_max: int
    gain_b: float
    u_low: float
    u_high: float
    step: StepTime | None = None


@dataclass(frozen=True, slots=True)
class FenceBucket:
    """The fence's quantile q_{1-eps}(D_b) of the length error for prompts of at most `prompt_upto` tokens that are too
    long for the bucket before it (H-MAS Eq. 4). The error is the quotient of an answer's length and of its predicted
    90 % quantile. `shared` is the factor by which memory is reserved, at most that one; 0: that one as well."""

    prompt_upto: int
    factor: float
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class FenceTable:
    """The buckets of one predictor, by the version of its tags, in the order of `prompt_upto`: for the requests of one
    tenant, or, without `tenant`, of all who have no table of their own."""

    version: str
    buckets: tuple[FenceBucket, ...]
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Fence:
    """The bounds on output lengths: l_upper = predicted 90 % quantile × the factor of the prompt's bucket, in the table
    of the predictor that tagged the request. There is a table for each predictor whose errors were calibrated. A bound
    holds for one request. Many never come near theirs at once, so that workers reserve memory by the `shared` factor.

    `rolling_upper` is a conservative output length, in tokens, for a running request that outgrew its bound (App. C.2).
    """

    tables: tuple[FenceTable, ...] = ()
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
    `by` names the operator. `split` is the operator's choice of the layout; None leaves that to the controller."""

    pool: str
    topology: TopologyName | None
    hints: Hints = field(default_factory=Hints)
    by: str = ""
    split: Split | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One decision of meta or Statera, with its reason and the view that it was taken on (as JSON). `selector` is who
    proposed it. Gains are differences of the share on time: the one that a rehearsal predicted of a switch, and the one
    that was seen after it."""

    source: str  # meta | statera | qos
    pool: str
    # decided | rejected | rolled_back | outcome | bypass_on | bypass_off | pinned | unpinned | layout | plan | step |
    # tuple
    kind: str
    decision: str
    reason: str
    selector: str
    view_json: str
    epoch: int
    seq: int
    predicted_gain: float | None = None
    observed_gain: float | None = None


# --- events: a control value arrived ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopologyReceived:
    """A topology decision arrived. `aged_s` is how long ago it was sent, in s: 0 if it came from its publisher, its age
    in the control bucket if it was read from there."""

    decision: TopologyDecision
    aged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LayoutReceived:
    """A layout decision arrived. `aged_s` is how long ago it was sent, in s."""

    decision: LayoutDecision
    aged_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TupleReceived:
    """A control tuple arrived. `aged_s` is how long ago it was sent, in s."""

    control: ControlTuple
    aged_s: float = 0.0
