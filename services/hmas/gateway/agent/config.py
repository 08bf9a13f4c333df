"""Constants of the gateway agent, frozen at start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Bounds and constants of the agent; durations in seconds.

    `patience_s`: how long a request waits for a worker to appear. `max_held`: requests that wait for one.
    `max_held_bytes`: bodies of all requests without a first token. `prior_*`: cost of a request nobody predicted yet.
    `report_lag_s`: a worker's report misses what was sent to it this long before it arrived.
    """

    gateway: str
    patience_s: float = 5.0
    request_timeout_s: float = 1800.0
    max_requests: int = 65_536
    max_held: int = 4_096
    max_held_bytes: int = 2**30
    max_attempts: int = 8
    report_lag_s: float = 0.02
    telemetry_s: float = 0.1
    telemetry_events: int = 256
    prior_output_tokens: float = 200.0
    prior_prefill_tokens_per_s: float = 8_000.0
    prior_tpot_s: float = 0.02
    rebalance_s: float = 0.5
    rebalance_after: int = 4  # consecutive imbalanced checks
    rebalance_recalls: int = 8  # most recalls a check
    rebalance_min_s: float = 2.0  # smallest difference of backlogs worth a move
