"""What a rehearsal is asked, and what it answers: how many of a pool's last requests would have been on time under
another policy."""

from dataclasses import dataclass, field

from hmas.contracts.control import Hints, Split, TopologyName
from hmas.contracts.engine_kind import UNKNOWN_KIND, EngineKind
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.views import PaceView

LEARN_S = 300.0  # of the past before that: what ended then shows how far predicted lengths are off
WARM_S = 60.0  # of the past before the judged seconds: a rehearsal replays it too, so that it judges no start


@dataclass(frozen=True, slots=True, kw_only=True)
class SloChange:
    """Another SLO for the requests of a tenant or task type named `name`, in s; None keeps what they had."""

    name: str
    ttft_s: float | None = None
    tpot_s: float | None = None


@dataclass(frozen=True, slots=True)
class InstanceCount:
    """So many engines of an instance type, which is stated whole, because a rehearsal knows no catalogue."""

    instance_type: InstanceType
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is in force in a pool, or could be. `proposer` says whose idea it is.

    `engines` None: those that the pool has. A number: so many, in the mix that the pool has, all the time. Counts of
    instance types, in the order in which classes get their engines: those of a plan that is ordered when what is judged
    begins. `leave_after_s` later, an engine that the plan has no place for is granted nothing any more and ends what
    runs there. One that the plan adds serves when the `start_s` of its type are over. `observes`: nothing is scheduled,
    because gateways place each request at once on the engine where it has the fewest.
    """

    topology: TopologyName
    hints: Hints = field(default_factory=Hints)
    split: Split = field(default_factory=Split)
    proposer: str = ""
    engines: tuple[InstanceCount, ...] | int | None = None
    leave_after_s: float = 0.0
    slos: tuple[SloChange, ...] = ()
    observes: bool = False


@dataclass(frozen=True, slots=True)
class PastLayout:
    """A layout that was in force in a pool until `age_s` seconds ago."""

    age_s: float
    split: Split


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolEngine:
    """One engine as its worker tells of it, with limits in the units of vLLM's flags; 0: not told. `pace`: its own, or
    of its kind in the mean where not enough was measured of it; None: neither is known. `instance_type` None: it is not
    known."""

    max_num_seqs: int
    max_model_len: int
    kv_capacity_tokens: int
    block_size: int
    kind: EngineKind = UNKNOWN_KIND
    pace: PaceView | None = None
    instance_type: InstanceType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFacts:
    """A pool as its workers and telemetry tell of it: its engines, in the order in which classes get them, how many
    workers they have, and their mean pace; None if that has not been measured yet. `layouts` are those before the one
    in force, as far as they are known, in order."""

    engines: tuple[PoolEngine, ...]
    workers: int
    pace: PaceView | None = None
    layouts: tuple[PastLayout, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantOnTime:
    """Of a tenant's `requests`, the share that was on time."""

    tenant: str
    requests: int
    on_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFigures:
    """How a pool's requests fared: the share on time, and quantiles of TTFT in s over those that had a first token."""

    requests: int
    on_time: float
    ttft_p50_s: float
    ttft_p95_s: float
    tenants: tuple[TenantOnTime, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantGain:
    """A candidate's gain over what is in force among a tenant's `requests`, with the ends of its 90 % interval."""

    tenant: str
    requests: int
    gain: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """A candidate's figures, and its gain over what is in force, as a difference of shares on time: `low` and `high`
    are the ends of its 90 % interval. `tenants`: the same of those with the most requests."""

    policy: Policy
    figures: PastFigures
    gain: float
    low: float
    high: float
    tenants: tuple[TenantGain, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The outcome of a rehearsal over the `window_s` seconds that it judges. `observed` is what happened, `in_force`
    the same in simulation. `abstains` says why the candidates' figures must not be believed; empty: they may. The
    output lengths of `drawn` requests are not known, and were drawn from what was predicted. `cpu_s`: its CPU time."""

    window_s: float
    observed: PastFigures
    in_force: PastFigures
    candidates: tuple[Rehearsed, ...]
    abstains: str = ""
    drawn: int = 0
    cpu_s: float = 0.0

    @property
    def miss(self) -> float:
        """By how much the simulation of what is in force has more on time than there were."""
        return self.in_force.on_time - self.observed.on_time
