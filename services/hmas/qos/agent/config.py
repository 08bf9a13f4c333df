"""What the QoS agent is told once."""

from dataclasses import dataclass

from hmas.contracts.cadences import LONG_VIEW_S, SHORT_VIEW_S, WORKER_LOST_AFTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class QosConfig:
    """Windows and cadences in seconds; the rest are bounds on memory."""

    short_window_s: float = 5.0
    short_bucket_s: float = 0.5
    short_every_s: float = SHORT_VIEW_S
    short_valid_for_s: float = 2.0
    long_window_s: float = 120.0
    long_bucket_s: float = 5.0
    long_every_s: float = LONG_VIEW_S
    smoothing_half_life_s: float = 30.0  # of V_long's violation rates: one decision period of the meta controller
    mismatch_epsilon: float = 1.0  # tokens/s: keeps Eq. 7 finite while an idle pool takes its first request
    arrival_reorder_s: float = 0.5  # gateways report every 100 ms, each in its own batch
    worker_lost_after_s: float = WORKER_LOST_AFTER_S
    pool_forgotten_after_s: float = 600.0
    max_pools: int = 64
    max_names: int = 32  # tenants, and task types, named in a view; the rest are `other`
    max_waiting: int = 200_000  # queued requests followed per worker
    max_late: int = 50_000  # running requests known to have missed their TTFT
