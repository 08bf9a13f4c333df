"""lambda*: the unit in which every experiment states its load.

It is the highest rate at which plain FCFS (the `vllm` baseline) on the same engines keeps a goodput rate of 0.95, for
one workload shape. It is found before any policy is compared, from seeds no comparison uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from hmas.engine.core.profile import EngineProfile
from hmas.sim.baselines.fleet import EngineFleet
from hmas.sim.baselines.systems import BASELINES, FleetSetting
from hmas.sim.workload import Workload

TARGET = 0.95
CAPACITY_SEEDS = (9001, 9002, 9003)
PRECISION = 0.01
COARSE = 0.08  # precision of the first search, on one seed
MAX_DOUBLINGS = 16
ROUNDING = 1e-9

Source = Callable[[float, int], Workload]  # (requests per second, seed)


@dataclass(frozen=True, slots=True)
class Capacity:
    """`rate_rps` is lambda*; `goodput_rate` what FCFS had there."""

    rate_rps: float
    goodput_rate: float


def fcfs_goodput_rate(
    source: Source, profile: EngineProfile, engines: int, rate_rps: float, seeds: tuple[int, ...] = CAPACITY_SEEDS
) -> float:
    """Mean goodput rate of FCFS over the seeds. Where it is below the target only a lower bound of it: a run is given
    up as soon as the mean cannot reach the target any more."""
    baseline = BASELINES["vllm"]
    rates: list[float] = []
    for seed in seeds:
        spare = sum(rates) + len(seeds) - len(rates) - TARGET * len(seeds)  # may yet be lost by this run
        if spare < -ROUNDING:
            break
        workload = source(rate_rps, seed).fitting(profile)
        cores = [baseline.core(profile, FleetSetting(1, seed)) for _ in range(engines)]
        rates.append(EngineFleet(baseline, cores, workload, late_share=spare + ROUNDING).run().score.goodput_rate)
    return sum(rates) / len(seeds)


def find_capacity(source: Source, profile: EngineProfile, engines: int, guess_rps: float) -> Capacity:
    """lambda* to 1 %: roughly on one seed, then on all. ValueError if FCFS misses the target at any rate, or never
    does."""

    @cache
    def rough(rate: float) -> float:
        return fcfs_goodput_rate(source, profile, engines, rate, CAPACITY_SEEDS[:1])

    @cache
    def precise(rate: float) -> float:
        return fcfs_goodput_rate(source, profile, engines, rate)

    low, high = _bracket(rough, guess_rps, 2.0)
    low, _ = _bisect(rough, low, high, rough(low), COARSE)
    low, high = _bracket(precise, low, 1.0 + COARSE)
    return Capacity(*_bisect(precise, low, high, precise(low), PRECISION))


Measure = Callable[[float], float]


def _bracket(measure: Measure, start: float, factor: float) -> tuple[float, float]:
    """Two rates `factor` apart, the lower kept and the higher missed."""
    rate, kept = start, measure(start) >= TARGET
    for _ in range(MAX_DOUBLINGS):
        following = rate * factor if kept else rate / factor
        if (measure(following) >= TARGET) is not kept:
            return min(rate, following), max(rate, following)
        rate = following
    if kept:
        raise ValueError("FCFS keeps 0.95 at any rate: the workload is too short to load these engines")
    raise ValueError("FCFS misses 0.95 at any rate: the SLOs cannot be met on these engines")


def _bisect(measure: Measure, low: float, high: float, kept: float, precision: float) -> tuple[float, float]:
    """The highest rate found to be kept, and its goodput rate."""
    while high - low > precision * low:
        middle = (low + high) / 2
        reached = measure(middle)
        if reached >= TARGET:
            low, kept = middle, reached
        else:
            high = middle
    return low, kept
