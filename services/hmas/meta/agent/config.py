"""What the meta controller is told once, one frozen part per component."""

from dataclasses import dataclass, field

from hmas.contracts.control import INITIAL_TOPOLOGY, Hints, TopologyName


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesConfig:
    """Thresholds of the rule-based policy map on V_long. `usual`: the topology taken unless a failure pattern calls for
    another one; SJF is that of H-MAS Algorithm 1, whose patterns of late first tokens apply to it alone. `hints`: its
    hints."""

    usual: TopologyName = INITIAL_TOPOLOGY
    hints: Hints = field(default_factory=Hints)
    min_settled: int = 30  # a rate over fewer requests is noise
    calm_violation: float = 0.02  # at most this: nothing to repair
    busy_violation: float = 0.05  # at least this: the queue order matters
    overload_mismatch: float = 0.10  # M_rho: demand this far above service outlives any queue
    overload_backlog_s: float = 4.0  # queued requests in seconds of arrivals; the tightest TTFT of Table 6
    slack_backlog_s: float = 1.0  # above it a queue stands, and some deadline in it is lost
    burst_mismatch: float = 0.5  # p95 of M_rho: overloaded for seconds at a time
    slack_mismatch: float = 0.2  # p95 of M_rho below which deadlines can all be met in principle
    heavy_cv: float = 1.0  # of predicted work: as spread as an exponential, so the long block the short
    unfair_jain: float = 0.8  # one of five tenants shut out
    fair_jain: float = 0.9  # hysteresis of the above
    starved_share: float = 0.6  # of the mean weighted service
    starved_ok: float = 0.6  # of the best tenant's share of OK requests
    min_tenant_settled: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassConfig:
    """Emergency bypass. An overload alone is no emergency: FCFS serves an overload worst of all."""

    collapse_violation: float = 0.95  # practically nothing is on time, whatever the order
    clear_violation: float = 0.5
    min_settled: int = 20  # of those not relegated, in V_short's window
    stall_tokens_per_s: float = 1.0  # below it, with a queue and an engine up, controls are choking the pool
    enter_after_s: float = 10.0  # a condition must last
    clear_after_s: float = 10.0
    hold_max_s: float = 60.0  # then normal adaptation is tried again, lest FCFS keep the violations up for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackConfig:
    """The guard window after a switch (Eq. 12).

    Overload is excused: if it began after the switch it explains a worse view by itself, and if it was there before,
    a worse tail is what an order that saves more requests gives up, so that only the violation rate counts.
    """

    rho: float = 1.5
    settle_s: float = 6.0  # until V_short's window lies after the switch
    window_s: float = 30.0
    min_samples: int = 20  # of TTFTs, or of settlements, before and now
    ttft_floor_s: float = 0.5  # worse than a tail this good is no failure
    violation_floor: float = 0.1
    confirmations: int = 4  # views in a row, one second
    overload_mismatch: float = 0.1
    ban_s: float = 120.0  # the topology rolled back is not chosen again for this long


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaConfig:
    selector: str = "rules"
    decide_every_s: float = 15.0  # Delta T_meta
    min_dwell_s: float = 30.0
    ask_timeout_s: float = 10.0
    valid_for_s: float = 15.0
    view_stale_s: float = 10.0
    pool_forgotten_after_s: float = 3600.0
    rules: RulesConfig = field(default_factory=RulesConfig)
    bypass: BypassConfig = field(default_factory=BypassConfig)
    rollback: RollbackConfig = field(default_factory=RollbackConfig)
