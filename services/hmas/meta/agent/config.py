"""The configuration of the meta agent, one part per component."""

from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.cadences import FORETELL_S
from hmas.contracts.control import INITIAL_TOPOLOGY, Hints, TopologyName
from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.contracts.rehearsal import LEARN_S, WARM_S
from hmas.laws.pace import PaceConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesConfig:
    """The thresholds of the rules on V_long. `usual` is the topology that is used unless a failure pattern calls for
    another one, with its `hints`. In H-MAS Algorithm 1 it is SJF; the patterns of late first tokens call for other
    topologies unless it is MaxOnTime."""

    usual: TopologyName = INITIAL_TOPOLOGY
    hints: Hints = field(default_factory=Hints)
    min_settled: int = 30  # rates over fewer settled requests are noise
    calm_violation: float = 0.02  # with at most this violation rate nothing needs repair
    busy_violation: float = 0.05  # from this violation rate of TTFT on, the order of the queue matters
    overload_mismatch: float = 0.10  # mean M_rho from which on demand exceeds service for good
    overload_backlog_s: float = 4.0  # queued requests over arrivals per second; the tightest TTFT of Table 6
    slack_backlog_s: float = 1.0  # above this backlog a queue persists, and some deadlines in it are missed
    burst_mismatch: float = 0.5  # p95 of M_rho from which on the pool is overloaded for seconds at a time
    slack_mismatch: float = 0.2  # p95 of M_rho up to which all deadlines can be met in principle
    heavy_cv: float = 1.0  # CV of predicted work, that of an exponential distribution: long requests block short ones
    unfair_jain: float = 0.8  # Jain's index if one of five tenants gets nothing
    fair_jain: float = 0.9  # Jain's index from which on shares are fair again (hysteresis)
    starved_share: float = 0.6  # a starved tenant gets less than this share of the mean weighted service
    starved_ok: float = 0.6  # and its share of OK requests is less than this part of the best tenant's
    min_tenant_settled: int = 20  # a tenant with fewer settled requests is not judged


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassConfig:
    """The conditions of the emergency bypass. An overload alone is not an emergency, because FCFS serves it worse than
    any other topology."""

    collapse_violation: float = 0.95  # violation rate at which hardly any request is on time, whatever the order
    clear_violation: float = 0.5  # violation rate at or below which the bypass may end
    min_settled: int = 20  # settled requests that were not relegated, in V_short's window, to judge a violation rate
    stall_tokens_per_s: float = 1.0  # less, with a queue and an engine up, means that controls hold the pool back
    enter_after_s: float = 10.0  # how long a condition must last before the bypass begins
    clear_after_s: float = 10.0  # how long it must be gone before the bypass ends
    hold_max_s: float = 60.0  # then normal adaptation is tried again, so that FCFS does not keep violations up for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackConfig:
    """The guard window after a switch, in which the old topology is restored if the view became worse (H-MAS Eq. 12).

    An overload is taken into account. If it began after the switch, it explains a worse view by itself, and nothing is
    rolled back. If it was there before, only the violation rate counts, because an order that keeps more requests on
    time lets the others wait longer, which worsens the tail of TTFT.
    """

    rho: float = 1.5  # factor by which a figure must have become worse
    settle_s: float = 6.0  # after this time V_short's window lies wholly after the switch
    window_s: float = 30.0  # length of the guard window from the switch on
    min_samples: int = 20  # TTFTs, or settlements, that both views need to be compared
    ttft_floor_s: float = 0.5  # a 99 % quantile of TTFT below this counts as this
    violation_floor: float = 0.1  # a violation rate below this counts as this
    confirmations: int = 4  # views in a row that must be worse; together about one second
    overload_mismatch: float = 0.1  # M_rho from which on the pool is overloaded
    overload_backlog_s: float = 4.0  # of requests queued before the switch, which are late in any order
    ban_s: float = 120.0  # how long the topology that was rolled back is not chosen again


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutConfig:
    """When and how a pool's layout is chosen; without `adaptive` it stays mixed unless an operator pins one."""

    adaptive: bool = True
    hold_s: float = 60.0  # how long a chosen layout is kept at least
    margin: float = 0.02  # least gain of splitting a mixed pool or mixing a split one, as a share of the requests
    too_slow: float = 0.02  # share of the requests for which steps must take too long before a mixed pool is split
    least_base: float = 0.4  # share of the tightest SLO that a step without requests takes; below, no split
    tightest: float = 0.05  # share of the requests that may have a tighter SLO than that one
    shift: float = 0.03  # least gain where the pool is split already: what waits moves to engines that are full
    least_stated: float = 0.5  # share of the requests whose SLO the client states; below, the pool is mixed
    min_requests: int = 100  # within the minutes of V_long; fewer do not tell a distribution
    min_observations: int = 3  # of an engine's pace, which are a quarter of a minute of work
    classes: int = 2
    cuts: int = 12  # most cuts that are tried, spread evenly over the requests
    pace: PaceConfig = field(default_factory=PaceConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalConfig:
    """Whether and how switches are rehearsed; times are in s."""

    enabled: bool = False
    window_s: float = 300.0  # of past requests
    margin: float = 0.01  # share of requests by which even the lower end of the predicted gain must be above 0
    cpu_share: float = 0.25  # of one core, on average
    timeout_s: float = 180.0  # an answer that takes longer is not waited for
    observe_s: float = 130.0  # after a switch, until V_long's window lies wholly after it


@dataclass(frozen=True, slots=True, kw_only=True)
class ForetellingConfig:
    """How it is simulated what scheduling would bring pools that are only observed; times are in s. Its CPU time counts
    as that of rehearsals."""

    enabled: bool = True
    every_s: float = FORETELL_S
    window_s: float = 300.0  # of past requests
    least_requests: float = 300.0  # within that time, at least; otherwise it is longer
    most_window_s: float = 3600.0 - LEARN_S - WARM_S  # QoS keeps an hour
    most_requests: float = 20_000.0  # within that time, at most; otherwise it is shorter
    timeout_s: float = 180.0  # an answer that takes longer is not waited for


class PlanActs(StrEnum):
    """How far the controller follows a plan by itself. Each may do what those before it may."""

    ADVISE = "advise"  # it only tells the plan
    ROUTING = "routing"  # it changes pace classes
    SCALE = "scale"  # it orders engines


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanConfig:
    """Whether plans are made, out of which instance types, and when the controller follows them; times are in s."""

    catalogue: Catalogue | None = None  # None: there are no plans
    budgets: tuple[Budget, ...] = ()
    acts: PlanActs = PlanActs.ADVISE
    look_every_s: float = 1.0  # heartbeats come no faster
    settle_s: float = 10.0  # after the first heartbeat; until then some engines may be unknown
    drain_s: float = 60.0  # what an engine is expected to need until its last answer has ended
    least_horizon_s: float = 600.0  # for which a gain is expected to last, however young the mix of requests is
    most_horizon_s: float = 3600.0
    rate_change: float = 0.3  # of a pool's requests per second, relative, from which on the mix is another one
    mix_change: float = 0.2  # share of a pool's requests that need another pace, from which on it is
    steps_a_day: int = 20  # most irreversible ones; half of them may send engines away
    slowness: float = 0.25  # by which measured steps without load may differ from the catalogue's
    min_observations: int = 3  # of an engine's pace
    miss: float = 0.05  # share of the requests by which a plan may gain less than was predicted
    misses: int = 2  # in a row, after which the controller does not act for a while
    stopped_s: float = 3600.0  # as long as that
    same_rate: float = 0.1  # of a pool's requests per second, relative, up to which a plan's gain can be judged
    observe_s: float = 130.0  # after a plan's last step, until V_long's window lies wholly after it
    search_every_s: float = 600.0  # between two searches for a better plan; 0: there are none
    search_window_s: float = 300.0  # of past requests, by which plans are judged
    search_requests: float = 200.0  # within that time, at least
    search_timeout_s: float = 300.0  # an answer that takes longer is not waited for
    search_cpu_share: float = 0.1  # of one core, on average
    patience: float = 5.0  # times what a step should take, after which it is given up


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaConfig:
    """The configuration of the meta agent; times are in s."""

    selector: str = "rules"
    decide_every_s: float = 15.0  # the decision period, Delta T_meta of H-MAS
    min_dwell_s: float = 30.0
    ask_timeout_s: float = 10.0
    valid_for_s: float = 15.0
    max_pools: int = 256  # above this the pool that was heard of longest ago is forgotten, pinned or not
    view_stale_s: float = 10.0
    pool_forgotten_after_s: float = 3600.0
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    foretelling: ForetellingConfig = field(default_factory=ForetellingConfig)
    layout: LayoutConfig = field(default_factory=LayoutConfig)
    plan: PlanConfig = field(default_factory=PlanConfig)
    rules: RulesConfig = field(default_factory=RulesConfig)
    bypass: BypassConfig = field(default_factory=BypassConfig)
    rollback: RollbackConfig = field(default_factory=RollbackConfig)
