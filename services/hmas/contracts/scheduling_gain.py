"""What scheduling would bring a pool where the mesh only observes: the share of its last requests that was on time, and
the share that would have been."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantScheduled:
    """Of a tenant's `requests`, the share that was on time, and that would have been as scheduled."""

    tenant: str
    requests: int
    was: float
    scheduled: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingGain:
    """What scheduling would have brought the `requests` of a pool's last `window_s` seconds, on its `engines` engines.
    All but the counts are shares on time: `was` is what was observed, `played` the same in simulation, and `scheduled`
    what it would have been under `topology`, with the ends `low` and `high` of its 90 % interval. `abstains` says why
    `scheduled` must not be believed or is not known; empty: it may be believed. `tenants`: those with the most
    requests."""

    pool: str
    window_s: float
    requests: int
    was: float
    played: float
    scheduled: float
    low: float
    high: float
    engines: int
    topology: str
    abstains: str = ""
    tenants: tuple[TenantScheduled, ...] = ()
