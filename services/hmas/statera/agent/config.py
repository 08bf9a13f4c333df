"""The configuration of the Statera agent, one part per component."""

from dataclasses import dataclass, field
from enum import StrEnum

from hmas.contracts.cadences import SHORT_VIEW_S, WORKER_LOST_AFTER_S
from hmas.contracts.control import StepTime
from hmas.laws.pace_fit import PaceFitConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceConfig:
    """The calibration of the fence. `epsilon` is the share of requests whose output may exceed their length bound."""

    epsilon: float = 0.1
    shared_factor: float = 1.0  # memory is reserved for at most this many times the predicted 90 % quantile
    prompt_edges: tuple[int, ...] = (128, 512, 2048, 8192)  # a last bucket takes longer prompts
    cohort: int = 1024  # requests looked at, those admitted last
    half_life: float = 150.0  # requests admitted after which one counts half
    min_samples: int = 30  # requests that must have ended before a predictor gets factors
    borrowed: float = 30.0  # requests as which all of a predictor's count in each of its buckets
    aci_gain: float = 0.02  # gamma of Gibbs & Candes 2021: about 50 requests to follow a shift
    aci_loop: float = 0.5  # upper limit of gamma times the number of running requests, whose ends are still to come
    epsilon_min: float = 0.01
    epsilon_max: float = 0.4
    rolling_epsilon: float = 0.02  # the epsilon of the conservative length of a request that outgrew its bound
    max_versions: int = 4
    max_tenants: int = 16  # of all predictors; beyond, a tenant goes by its predictor's table of all
    tenants_at_once: int = 4  # whose tables are made anew at one refresh
    refresh_s: float = 1.0


class NRunRule(StrEnum):
    """What limits the requests that run in an engine. `ENGINE`: its own limit. `STEP`: that, and the time that a step
    has. `BAND`: a loop that keeps utilisation in its band, as another does by B_token (H-MAS Algorithm 2)."""

    ENGINE = "engine"
    STEP = "step"
    BAND = "band"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeterConfig:
    """How the cost of an engine's steps is learnt. `observations`: of the pace law that are needed before it is told.
    `keep`: weight of a sample's rates of tokens relative to the next one's. `known`: the cost of
    engines, by their names, of which it is known and need not be learnt."""

    fit: PaceFitConfig = field(default_factory=PaceFitConfig)
    observations: int = 6
    keep: float = 0.997  # of half a minute at telemetry's 0.1 s, some answers long
    known: tuple[tuple[str, StepTime], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NRunConfig:
    """What moves N_run and B_token of each engine. Whatever the `rule`, N_run follows a limit that the engine itself
    shows. B_token is moved by the loop of `BAND` alone."""

    rule: NRunRule = NRunRule.STEP
    steps: StepMeterConfig = field(default_factory=StepMeterConfig)
    u_high: float = 0.95  # of the KV memory, this much may be reserved; at a mean step of 1, every other one is late
    width: float = 0.1  # u_high - u_low
    period_s: float = 1.0  # at least five cycles of the worker's inner loop
    min_samples: int = 5  # utilisation samples that a move needs since the last one
    gain: float = 0.5  # share of the relative error that a move corrects; 1 would be a Newton step on a linear plant
    slew: float = 0.2  # largest relative change of N_run per move
    recovery: float = 0.02  # rise of N_run per move, as a share of its maximum, while no request is queued
    waiting_share: float = 0.05  # requests that may wait in the engine for each running one, to refill its batch
    prefilling_share: float = 0.5  # of the highest prefill rate seen; above it, what waits in the engine shows no limit
    probing: float = 0.05  # largest relative rise per move above a limit that the engine has shown
    limit_memory_s: float = 300.0  # how long such a limit is assumed to hold
    n_min: int = 1
    n_most: int = 2**30  # upper limit of N_run beside the engine's own
    min_prefill_chunk: int = 1  # tokens; over HTTP a prefill takes one slot, inside an engine at least one chunk
    inner_gain: float = 0.02  # share of b_max per cycle and unit of utilisation error (eta_B of Algorithm 2)
    unconditional: bool = False  # true: move N_run even if the inner loop is not saturated (Algorithm 2 as printed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateraConfig:
    """The configuration of the Statera agent; times are in s."""

    fence: FenceConfig = field(default_factory=FenceConfig)
    band: NRunConfig = field(default_factory=NRunConfig)
    valid_for_s: float = 5.0
    min_publish_s: float = SHORT_VIEW_S  # least time between two tuples of a worker
    view_stale_s: float = 5.0
    worker_lost_after_s: float = WORKER_LOST_AFTER_S
    pool_forgotten_after_s: float = 3600.0  # then the pool's calibration is lost too
    audit_change: float = 0.1  # relative change of N_run that is worth an audit record
