"""What Statera is told once, one frozen part per component."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import SHORT_VIEW_S, WORKER_LOST_AFTER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceConfig:
    """Conformal calibration. `epsilon`: share of requests that may outgrow their bound."""

    epsilon: float = 0.1
    prompt_edges: tuple[int, ...] = (128, 512, 2048, 8192)  # a last bucket takes longer prompts
    buffer: int = 512  # errors kept per bucket
    min_samples: int = 30  # below it a bucket borrows the pooled quantile
    aci_gain: float = 0.01  # gamma of Gibbs & Candes 2021: about 100 requests to follow a shift
    epsilon_min: float = 0.01
    epsilon_max: float = 0.3
    rolling_epsilon: float = 0.02  # of the conservative estimate for a request that outgrew its bound
    max_versions: int = 4
    refresh_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BandConfig:
    """The outer loop, per engine."""

    period_s: float = 1.0  # at least five cycles of the worker's inner loop
    min_samples: int = 5  # utilisation samples since the last move
    gain: float = 0.5  # share of the relative error taken back per move; 1 would be a Newton step on a linear plant
    slew: float = 0.2  # most relative change of N_run per move
    recovery: float = 0.02  # of N_max per move, while N_run binds nobody
    waiting_share: float = 0.05  # of the running ones may wait inside the engine, to refill its batch at once
    probing: float = 0.05  # most relative rise per move above a limit the engine has shown
    limit_memory_s: float = 300.0  # how long such a limit is believed
    n_min: int = 1
    min_prefill_chunk: int = 1  # over HTTP a prefill takes one slot; inside an engine its smallest chunk, in tokens
    inner_gain: float = 0.02  # of b_max per cycle and unit of utilisation error (eta_B of Algorithm 2)
    unconditional: bool = False  # Algorithm 2 as printed: move although the inner loop has room


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekerConfig:
    """Extremum seeking of the band's upper edge."""

    start: float = 0.85  # of the tightest TPOT SLO: a mean step near 1 makes every other request late
    lowest: float = 0.65
    highest: float = 1.0  # above it the tightest request is late for certain
    width: float = 0.1  # u_high - u_low
    dither: float = 0.03
    settle_s: float = 8.0  # of each phase; longer than the outer loop and the short window need
    measure_s: float = 12.0  # of each phase
    gain: float = 0.2  # of the relative difference in goodput
    significance: float = 0.02  # relative differences below it are noise
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StateraConfig:
    fence: FenceConfig = field(default_factory=FenceConfig)
    band: BandConfig = field(default_factory=BandConfig)
    seeker: SeekerConfig = field(default_factory=SeekerConfig)
    valid_for_s: float = 5.0
    min_publish_s: float = SHORT_VIEW_S  # changes in between are coalesced
    view_stale_s: float = 5.0
    worker_lost_after_s: float = WORKER_LOST_AFTER_S
    pool_forgotten_after_s: float = 3600.0  # its calibration with it
    freeze_after_switch_s: float = 30.0  # of the seeker: a new topology changes what goodput there is
    audit_change: float = 0.1  # relative change of N_run worth a record
