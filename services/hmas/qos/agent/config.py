"""The configuration of the QoS agent."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import LONG_VIEW_S, SHORT_VIEW_S, WORKER_LOST_AFTER_S
from hmas.laws.pace_fit import PaceFitConfig
from hmas.qos.agent.past_requests import PastConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class QosConfig:
    """Windows, buckets and periods of the views in s, and (`max_*`) bounds on memory."""

    short_window_s: float = 5.0
    short_bucket_s: float = 0.5
    short_every_s: float = SHORT_VIEW_S
    short_valid_for_s: float = 2.0
    long_window_s: float = 120.0
    long_bucket_s: float = 5.0
    long_every_s: float = LONG_VIEW_S
    smoothing_half_life_s: float = 30.0  # half-life of an observation in V_long's smoothed violation rates
    mismatch_epsilon: float = 1.0  # tokens/s: keeps M_rho (Eq. 7) finite while an idle pool takes its first request
    arrival_reorder_s: float = 0.5  # gateways report every 100 ms, each in its own batch
    worker_lost_after_s: float = WORKER_LOST_AFTER_S
    pool_forgotten_after_s: float = 600.0
    max_pools: int = 64
    max_names: int = 32  # tenants, and task types, that a view names; the rest are counted as `other`
    max_waiting: int = 200_000  # queued requests per worker whose waiting time is followed
    max_demands: int = 512  # kinds of requests (by TPOT SLO and lengths) that a bucket of V_long counts
    pace: PaceFitConfig = field(default_factory=PaceFitConfig)
    past: PastConfig = field(default_factory=PastConfig)
    max_late: int = 50_000  # running requests per worker that are remembered to have missed their TTFT SLO
