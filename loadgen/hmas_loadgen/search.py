"""lambda*: the highest rate at which a system still keeps a goodput rate of 0.95, found with few runs.

A run is long and noisy, so each rate is measured once; the search doubles up or halves down to a bracket, then
bisects the logarithm of the rate. Where noise makes a higher rate pass after a lower one failed, the bracket stays
between the highest rate below which all passed and the lowest that failed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

GOODPUT_RATE = 0.95
Measure = Callable[[float], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class ProbedRate:
    """One run: offered rate and the goodput rate it gave."""

    rate_rps: float
    goodput_rate: float


@dataclass(frozen=True, slots=True)
class RateSearch:
    """`rate_rps` (lambda*) passed; `failing_rps` is the lowest rate above it that failed, None if none did."""

    rate_rps: float
    failing_rps: float | None
    points: tuple[ProbedRate, ...]


async def find_rate(
    measure: Measure,
    start_rps: float,
    *,
    threshold: float = GOODPUT_RATE,
    tolerance: float = 0.05,
    max_runs: int = 10,
    step: float = 2.0,
) -> RateSearch:
    """Searches from `start_rps` until the bracket's ratio is at most 1 + `tolerance` or `max_runs` are spent.

    Raises ValueError if not even the lowest rate tried passes.
    """
    if start_rps <= 0 or step <= 1 or tolerance <= 0 or max_runs < 2:
        raise ValueError("start_rps and tolerance must be positive, step above 1, max_runs at least 2")
    points: list[ProbedRate] = []
    rate = start_rps
    while len(points) < max_runs:
        points.append(ProbedRate(rate, await measure(rate)))
        low, high = bracket(points, threshold)
        if low is None:
            rate = min(point.rate_rps for point in points) / step
        elif high is None:
            rate = low * step
        elif high / low <= 1 + tolerance:
            break
        else:
            rate = (low * high) ** 0.5
    low, high = bracket(points, threshold)
    if low is None:
        lowest = min(points, key=lambda point: point.rate_rps)
        raise ValueError(
            f"goodput rate is {lowest.goodput_rate:.3f} even at {lowest.rate_rps:.3g} requests/s, below {threshold}; "
            "the SLOs cannot be met at any load, or the run is too short"
        )
    return RateSearch(low, high, tuple(points))


def bracket(points: list[ProbedRate], threshold: float) -> tuple[float | None, float | None]:
    """Highest passing rate below every failing one, and the lowest failing rate."""
    failing = min((p.rate_rps for p in points if p.goodput_rate < threshold), default=None)
    passing = [p.rate_rps for p in points if p.goodput_rate >= threshold and (failing is None or p.rate_rps < failing)]
    return max(passing, default=None), failing
