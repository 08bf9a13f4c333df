"""lambda*: the unit in which every experiment states its load.

It is the highest rate at which plain FCFS (the `vllm` baseline) on the same engines keeps a goodput rate of 0.95, for
one workload shape. It is found before any policy is compared, from seeds no comparison uses.
"""

from collections.abc import Callable
from dataclasses import dataclass

from services.engine.profile import EngineProfile
from services.sim.baselines.fleet import Fleet
from services.sim.baselines.systems import BASELINES, FleetSetting
from services.sim.workload import Workload

TARGET = 0.95
CAPACITY_SEEDS = (9001, 9002, 9003)
PRECISION = 0.01
MAX_DOUBLINGS = 16

Source = Callable[[float, int], Workload]  # (requests per second, seed)


@dataclass(frozen=True, slots=True)
class Capacity:
    """`rate_rps` is lambda*; `goodput_rate` what FCFS had there."""

    rate_rps: float
    goodput_rate: float


def fcfs_goodput_rate(source: Source, profile: EngineProfile, engines: int, rate_rps: float) -> float:
    """Mean goodput rate of FCFS over the capacity seeds."""
    rates = []
    for seed in CAPACITY_SEEDS:
        workload = source(rate_rps, seed).fitting(profile)
        baseline = BASELINES["vllm"]
        cores = [baseline.core(profile, FleetSetting(1, seed)) for _ in range(engines)]
        rates.append(Fleet(baseline, cores, workload).run().score.goodput_rate)
    return sum(rates) / len(rates)


def find_capacity(source: Source, profile: EngineProfile, engines: int, guess_rps: float) -> Capacity:
    """Bisects for lambda* to 1 %. ValueError if FCFS misses the target at any rate, or never does."""

    def goodput(rate: float) -> float:
        return fcfs_goodput_rate(source, profile, engines, rate)

    low = high = guess_rps
    good = goodput(low)
    for _ in range(MAX_DOUBLINGS):
        if good >= TARGET:
            break
        low /= 2
        good = goodput(low)
    else:
        raise ValueError("FCFS misses 0.95 at any rate: the SLOs cannot be met on these engines")
    for _ in range(MAX_DOUBLINGS):
        high = max(high, 2 * low)
        if (reached := goodput(high)) < TARGET:
            break
        low, good = high, reached
    else:
        raise ValueError("FCFS keeps 0.95 at any rate: the workload is too short to load these engines")
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        reached = goodput(middle)
        if reached >= TARGET:
            low, good = middle, reached
        else:
            high = middle
    return Capacity(low, good)
