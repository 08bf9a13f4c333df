"""Bounds and constants of the gateway agent; they do not change after start."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S, USE_S
from hmas.gateway.agent.linking import LinkingConfig
from hmas.gateway.agent.outlook import OutlookConfig
from hmas.gateway.agent.stalls import StallConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Bounds and constants of the gateway agent; durations in seconds.

    `patience_s`: how long a request is held until a worker of its model appears. `max_held`: most requests held so.
    `max_held_bytes`: most bytes of bodies of requests without a first token. `max_attempts`: a request that was
    submitted so often is not moved for balance any more. `observe`: the gateway places every request itself, on the
    engine with the least outstanding ones and without limits, and workers say what they would have granted.
    `fail_open`: whether the gateway places requests by itself on engines whose worker was silent for
    `fail_open_after_s`. `pull_after_s`: so long a request waits at a worker before the gateway may place it so.
    `bypass_tries`: most failures of one request so placed. `bypass_pause_s`, `bypass_max_pause_s`: first and longest
    pause of an engine that failed it. `bypass_trial_s`: an engine that shows no life gets a further request only after
    this time, which must exceed the time-out of a connection. `prior_*`: output length, prefill speed and TPOT assumed
    of a request that cognition has not annotated.
    `report_lag_s`: requests sent less than this before a worker's report arrived are not counted in the report yet.
    `exchange_s`: period of the reports by which gateways share the limits of tenants; one that is silent for
    `peer_lost_s` is gone. `incarnation`: random, new at each start. `max_peers`: most other gateways. `max_reported`:
    most tenants, and promises, in one report.
    `min_retry_s`, `max_retry_s`: bounds of the `Retry-After` that is computed when a queue is full.
    """

    gateway: str
    incarnation: str = ""
    patience_s: float = 10.0
    request_timeout_s: float = 1800.0
    max_requests: int = 65_536
    max_held: int = 4_096
    max_held_bytes: int = 2**30
    max_attempts: int = 8
    observe: bool = False
    fail_open: bool = True
    fail_open_after_s: float = 2.0
    pull_after_s: float = 0.1
    bypass_tries: int = 3
    bypass_pause_s: float = 1.0
    bypass_max_pause_s: float = 30.0
    bypass_trial_s: float = 4.0
    report_lag_s: float = 0.02
    telemetry_s: float = TELEMETRY_S
    telemetry_events: int = TELEMETRY_EVENTS
    prior_output_tokens: float = 200.0
    prior_prefill_tokens_per_s: float = 8_000.0
    prior_tpot_s: float = 0.02
    rebalance_s: float = 0.5  # time between two checks of the balance between workers
    rebalance_after: int = 4  # consecutive checks with an imbalance before requests are moved
    rebalance_moves: int = 8  # most moves per check
    rebalance_min_s: float = 2.0  # smallest difference between two workers' backlogs that counts as imbalance
    rebalance_min_share: float = 0.5  # smallest such difference as a share of the larger backlog
    min_retry_s: float = 1.0
    max_retry_s: float = 120.0
    exchange_s: float = USE_S
    peer_lost_s: float = 1.5
    max_peers: int = 256
    max_reported: int = 1_024
    max_prefix_nodes: int = 262_144  # most pairs of a prompt's beginning and a worker that are remembered
    prefix_capacity_tokens: int = 262_144  # taken for the KV memory of an engine that does not tell it
    max_candidates: int = 16  # most workers among which the cost of a request is compared
    max_holders: int = 6  # of a larger pool's, how many because they hold a beginning of the prompt ...
    max_drawn: int = 4  # ... and how many drawn by the prompt's digest
    min_gain_s: float = 0.05  # a request leaves the worker it is at home at only for a gain above this ...
    min_gain_share: float = 0.1  # ... and above this share of its cost elsewhere
    bounded_load: float = 1.25  # of the mean number of requests, up to which a worker keeps its own without that
    balance: float = 0.1  # what a second more of backlog than at the least loaded worker counts, in s
    trust_gain: float = 0.05  # weight of the newest report of cached tokens
    max_told_nodes: int = 1_024  # most beginnings of prompts in one report to other gateways
    max_promises: int = 16_384  # most promises kept: refused requests that were told when to come back
    promise_kept_s: float = 120.0  # how long a promise is honoured after its time
    forget_worker_s: float = 60.0  # a worker is forgotten if it is not connected and was silent for this long
    forget_bypass_s: float = 3_600.0  # the same for one whose engines the gateway may use by itself
    max_idle_tenants: int = 4_096  # above this many tenants, the state of those without requests is dropped
    max_views: int = 256  # pools whose last V_short is kept
    max_pools: int = 256  # pools that are remembered, whether or not their workers still live
    stalls: StallConfig = field(default_factory=StallConfig)
    linking: LinkingConfig = field(default_factory=LinkingConfig)
    outlook: OutlookConfig = field(default_factory=OutlookConfig)
