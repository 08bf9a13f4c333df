"""Constants of the gateway agent, frozen at start."""

from dataclasses import dataclass

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Bounds and constants of the agent; durations in seconds.

    `patience_s`: how long a request waits for a worker to appear. `max_held`: requests that wait for one.
    `max_held_bytes`: bodies of all requests without a first token. `prior_*`: cost of a request nobody predicted yet.
    `report_lag_s`: a worker's report misses what was sent to it this long before it arrived. `min_retry_s`,
    `max_retry_s`: of a `Retry-After` that goes by a full queue.
    """

    gateway: str
    patience_s: float = 5.0
    request_timeout_s: float = 1800.0
    max_requests: int = 65_536
    max_held: int = 4_096
    max_held_bytes: int = 2**30
    max_attempts: int = 8
    report_lag_s: float = 0.02
    telemetry_s: float = TELEMETRY_S
    telemetry_events: int = TELEMETRY_EVENTS
    prior_output_tokens: float = 200.0
    prior_prefill_tokens_per_s: float = 8_000.0
    prior_tpot_s: float = 0.02
    rebalance_s: float = 0.5
    rebalance_after: int = 4  # consecutive imbalanced checks
    rebalance_recalls: int = 8  # most recalls a check
    rebalance_min_s: float = 2.0  # smallest difference of backlogs worth a move
    rebalance_min_share: float = 0.5  # of the larger backlog, likewise
    min_retry_s: float = 1.0
    max_retry_s: float = 120.0
    max_promises: int = 16_384  # refused requests that were told when to come back
    promise_kept_s: float = 120.0  # beyond the time that was told
    forget_worker_s: float = 60.0  # a worker neither connected nor heard of
    max_idle_tenants: int = 4_096  # states kept of tenants without requests
    max_views: int = 256  # pools whose last V_short is kept
    max_pools: int = 256  # models that are known, their workers dead or alive
