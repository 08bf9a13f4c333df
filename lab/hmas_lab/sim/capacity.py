"""lambda*: the unit in which every experiment states its load.

It is the highest rate at which plain FCFS (the `vllm` baseline) on the same engines keeps a goodput rate of 0.95, for
one shape of workload. It is found before any policy is compared, with seeds that no comparison uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from hmas.engine.core.profile import EngineProfile
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.workload import Workload
from hmas_lab.sim.baselines.systems import BASELINES

TARGET = 0.95
CAPACITY_SEEDS = (9001, 9002, 9003)
PRECISION = 0.01
COARSE = 0.08  # precision of the first search, on one seed
MAX_DOUBLINGS = 16
ROUNDING = 1e-9

Source = Callable[[float, int], Workload]  # (requests per second, seed)


@dataclass(frozen=True, slots=True)
class Capacity:
    """lambda* in requests per second (`rate_rps`), and the goodput rate that FCFS had at it."""

    rate_rps: float
    goodput_rate: float


def fcfs_goodput_rate(
    source: Source, profile: EngineProfile, engines: int, rate_rps: float, seeds: tuple[int, ...] = CAPACITY_SEEDS
) -> float:
    """Returns the mean goodput rate of FCFS over the seeds. A value below `TARGET` is only a lower bound of it, because
    runs stop as soon as the mean cannot reach the target any more."""
    baseline = BASELINES["vllm"]
    rates: list[float] = []
    for seed in seeds:
        spare = sum(rates) + len(seeds) - len(rates) - TARGET * len(seeds)  # what this and later runs may yet lose
        if spare < -ROUNDING:
            break
        workload = source(rate_rps, seed).fitting(profile)
        cores = [baseline.core(profile, FleetSetting(seed)) for _ in range(engines)]
        rates.append(EngineFleet(baseline, cores, workload, late_share=spare + ROUNDING).run().score.goodput_rate)
    return sum(rates) / len(seeds)


def find_capacity(source: Source, profile: EngineProfile, engines: int, guess_rps: float) -> Capacity:
    """Returns lambda* to 1 %, searched coarsely on one seed and then precisely on all. Raises ValueError if FCFS misses
    the target at every rate, or at none."""

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
    """Returns two rates `factor` apart, of which the lower one reaches the target goodput rate and the higher one does
    not. Raises ValueError if no such pair is found."""
    rate, kept = start, measure(start) >= TARGET
    for _ in range(MAX_DOUBLINGS):
        following = rate * factor if kept else rate / factor
        if (measure(following) >= TARGET) is not kept:
            return min(rate, following), max(rate, following)
        rate = following
    if kept:
        raise ValueError(
            f"FCFS keeps a goodput rate of {TARGET} up to {rate:g} requests/s: the workload is too short to load these "
            "engines; give it a longer duration_s or fewer engines"
        )
    raise ValueError(
        f"FCFS misses a goodput rate of {TARGET} even at {rate:g} requests/s: these engines cannot meet the SLOs; "
        "choose a faster profile or another workload"
    )


def _bisect(measure: Measure, low: float, high: float, kept: float, precision: float) -> tuple[float, float]:
    """Returns the highest rate found at which FCFS reaches the target, and its goodput rate there."""
    while high - low > precision * low:
        middle = (low + high) / 2
        reached = measure(middle)
        if reached >= TARGET:
            low, kept = middle, reached
        else:
            high = middle
    return low, kept
