"""Bounds and constants of the gateway agent; they do not change after start."""

from dataclasses import dataclass

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Bounds and constants of the gateway agent; durations in seconds.

    `patience_s`: how long a request is held until a worker of its model appears. `max_held`: most requests held so.
    `max_held_bytes`: most bytes of bodies of requests without a first token. `max_attempts`: most submissions of one
    request. `prior_*`: output length, prefill speed and TPOT assumed of a request that cognition has not annotated.
    `report_lag_s`: requests sent less than this before a worker's report arrived are not counted in the report yet.
    `min_retry_s`, `max_retry_s`: bounds of the `Retry-After` that is computed when a queue is full.
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
    rebalance_s: float = 0.5  # time between two checks of the balance between workers
    rebalance_after: int = 4  # consecutive checks with an imbalance before requests are recalled
    rebalance_recalls: int = 8  # most recalls per check
    rebalance_min_s: float = 2.0  # smallest difference between two workers' backlogs that counts as imbalance
    rebalance_min_share: float = 0.5  # smallest such difference as a share of the larger backlog
    min_retry_s: float = 1.0
    max_retry_s: float = 120.0
    max_promises: int = 16_384  # most promises kept: refused requests that were told when to come back
    promise_kept_s: float = 120.0  # how long a promise is honoured after its time
    forget_worker_s: float = 60.0  # a worker is forgotten if it is not connected and was silent for this long
    max_idle_tenants: int = 4_096  # above this many tenants, the state of those without requests is dropped
    max_views: int = 256  # pools whose last V_short is kept
    max_pools: int = 256  # pools that are remembered, whether or not their workers still live
