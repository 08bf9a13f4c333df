"""Bounds and constants of the gateway agent; they do not change after start."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S, USE_S
from hmas.laws.job_profiles import JobProfilesConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FailOpenConfig:
    """When the gateway places requests by itself; durations in seconds."""

    enabled: bool = True  # whether it does so on engines whose worker was silent for `after_s`
    after_s: float = 2.0
    pull_after_s: float = 0.1  # how long a request waits at a worker before it may be placed so
    tries: int = 3  # most failures of one request so placed
    pause_s: float = 1.0  # first pause of an engine that failed it
    max_pause_s: float = 30.0  # its longest pause
    # An engine that shows no life gets a further request only after this time, which must exceed the time-out of a
    # connection.
    trial_s: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPriorConfig:
    """What is assumed of a request that cognition has not annotated: its output length, and how fast engines serve."""

    output_tokens: float = 200.0
    prefill_tokens_per_s: float = 8_000.0
    tpot_s: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """What the gateway remembers of workers; durations in seconds.

    `report_lag_s`: requests sent less than this before a worker's report arrived are not counted in the report yet.
    `forget_s`: a worker is forgotten if it is not connected and was silent for this long; `forget_bypass_s`: the same
    for one whose engines the gateway may use by itself.
    """

    report_lag_s: float = 0.02
    forget_s: float = 60.0
    forget_bypass_s: float = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteChoiceConfig:
    """How a worker is chosen for a known prompt (`route_chooser.py`)."""

    max_nodes: int = 262_144  # most pairs of a prompt's beginning and a worker that are remembered
    capacity_tokens: int = 262_144  # taken for the KV memory of an engine that does not tell it
    max_candidates: int = 16  # most workers among which the cost of a request is compared
    max_holders: int = 6  # of a larger pool's, how many because they hold a beginning of the prompt ...
    max_drawn: int = 4  # ... and how many drawn by the prompt's digest
    min_gain_s: float = 0.05  # a request leaves the worker it is at home at only for a gain above this ...
    min_gain_share: float = 0.1  # ... and above this share of its cost elsewhere
    bounded_load: float = 1.25  # of the mean number of requests, up to which a worker keeps its own without that
    balance: float = 0.1  # what a second more of backlog than at the least loaded worker counts, in s
    trust_gain: float = 0.05  # weight of the newest report of cached tokens
    max_told_nodes: int = 1_024  # most beginnings of prompts in one report to other gateways


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceConfig:
    """When waiting requests move from one worker to another."""

    every_s: float = 0.5  # time between two checks of the balance between workers
    after: int = 4  # consecutive checks with an imbalance before requests are moved
    moves: int = 8  # most moves per check
    min_s: float = 2.0  # smallest difference between two workers' backlogs that counts as imbalance
    min_share: float = 0.5  # smallest such difference as a share of the larger backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitConfig:
    """How long a refused client is told to wait. `min_retry_s`, `max_retry_s`: bounds of the `Retry-After` that is
    computed when a queue is full, in seconds. `max_views`: pools whose last V_short is kept."""

    min_retry_s: float = 1.0
    max_retry_s: float = 120.0
    max_views: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseConfig:
    """`max_promises`: most promises kept, of refused requests that were told when to come back. `kept_s`: how long one
    is honoured after its time, in seconds."""

    max_promises: int = 16_384
    kept_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NeighbourConfig:
    """What gateways tell one another. `exchange_s`: period of the reports by which they share the limits of tenants;
    one that is silent for `lost_s` is gone. `max_peers`: most other gateways. `max_reported`: most tenants, and
    promises, in one report."""

    exchange_s: float = USE_S
    lost_s: float = 1.5
    max_peers: int = 256
    max_reported: int = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class StallConfig:
    """The bounds on an engine's silence; durations in seconds."""

    least_s: float = 30.0  # a pause of this length is nothing unusual, e.g. while an engine compiles or is frozen
    factor: float = 20.0  # times the usual time: load, long prompts and preemption cost several times as much at most
    unknown_s: float = 300.0  # for an engine that has not answered yet: three times a prefill of 100 s
    starved: float = 10.0  # times the bound, for a run that may wait for others inside its engine
    smoothing: float = 0.1  # weight of a new measurement of an engine's pace
    check_s: float = 0.25  # time between two looks at all runs
    most_gap_s: float = 1.0  # a longer time between two ticks means that this process was stopped
    max_engines: int = 4_096  # whose pace is kept: beyond, that of the engine known longest is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkingConfig:
    """The bounds of the linker's tables. `silent_s`: after that many seconds without a stage a job is not found by its
    first message any more. `max_told`: of more jobs in one report the last ones are told."""

    max_jobs: int = 65_536
    max_ends: int = 65_536
    max_alike: int = 16  # jobs with the same first message, and prompts with the same end, that are kept apart
    silent_s: float = 600.0
    exchange_s: float = 1.0
    max_told: int = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlookConfig:
    """`max_jobs`: beyond, the job that came first is forgotten. `max_stages`: later stages of a job are not learnt.
    The time per output token that an engine needs at best falls to that of each answer of `timed_tokens` and more, and
    rises by the share `rise` of the way to a slower one. `hopes`: a stage's due time goes by what is left of its job if
    that turns out short; otherwise by the medians."""

    max_jobs: int = 16_384
    max_stages: int = 256
    silent_s: float = 60.0
    timed_tokens: int = 16
    rise: float = 0.001
    hopes: bool = True
    profiles: JobProfilesConfig = field(default_factory=JobProfilesConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegConfig:
    """How long the engine of a prompt may stand still before a split request has its first token: `factor` times what
    is usual, at least `least_s`, and `unknown_s` while that is not known; `starved` times as long if it serves others.
    After `word_s` without a word of its worker a request whose prompt is computed goes on to the engine of its grant.
    `smoothing`: the weight of each observation."""

    least_s: float = 2.0
    unknown_s: float = 10.0
    factor: float = 10.0
    starved: float = 4.0
    word_s: float = 0.25
    smoothing: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Identity and bounds of one gateway; durations in seconds."""

    gateway: str
    incarnation: str = ""  # random, new at each start
    patience_s: float = 10.0  # how long a request is held until a worker of its model appears
    request_timeout_s: float = 1800.0
    max_requests: int = 65_536
    max_held: int = 4_096  # most requests held so
    max_held_bytes: int = 2**30  # most bytes of bodies of requests without a first token
    max_attempts: int = 8  # a request that was submitted so often is not moved for balance any more
    # The gateway places every request itself, on the engine with the least outstanding ones and without limits, and
    # workers say what they would have granted.
    observe: bool = False
    telemetry_s: float = TELEMETRY_S
    telemetry_events: int = TELEMETRY_EVENTS
    max_idle_tenants: int = 4_096  # above this many tenants, the state of those without requests is dropped
    max_pools: int = 256  # pools that are remembered, whether or not their workers still live
    fail_open: FailOpenConfig = field(default_factory=FailOpenConfig)
    prior: GatewayPriorConfig = field(default_factory=GatewayPriorConfig)
    router: RouterConfig = field(default_factory=RouterConfig)
    chooser: RouteChoiceConfig = field(default_factory=RouteChoiceConfig)
    rebalance: RebalanceConfig = field(default_factory=RebalanceConfig)
    waits: WaitConfig = field(default_factory=WaitConfig)
    promises: PromiseConfig = field(default_factory=PromiseConfig)
    neighbours: NeighbourConfig = field(default_factory=NeighbourConfig)
    stalls: StallConfig = field(default_factory=StallConfig)
    legs: LegConfig = field(default_factory=LegConfig)
    linking: LinkingConfig = field(default_factory=LinkingConfig)
    job_outlook: JobOutlookConfig = field(default_factory=JobOutlookConfig)
