"""Searches λ*, the highest rate at which a system keeps a goodput rate of 0.95, with few runs.

A run takes long, so each rate is measured once. The search doubles or halves the rate until one rate passes and a
higher one fails, then bisects the logarithm of the rate between them. If noise makes a rate pass although a lower one
failed, the search stays between the lowest rate that failed and the highest passing rate below it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

GOODPUT_RATE = 0.95
Measure = Callable[[float], Awaitable[float]]


@dataclass(frozen=True, slots=True)
class ProbedRate:
    """One run of the search: the offered rate, requests per second, and the goodput rate it gave, 0 to 1."""

    rate_rps: float
    goodput_rate: float


@dataclass(frozen=True, slots=True)
class RateSearch:
    """The result of a search: `rate_rps` (λ*) is the highest rate that passed; `failing_rps` is the lowest rate that
    failed, None if none did; `points` are all runs."""

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
    """Searches the highest rate whose goodput rate, as `measure` returns it, is at least `threshold`.

    The search starts at `start_rps`, multiplies or divides by `step` until it has a passing and a failing rate, and
    ends when their ratio is at most 1 + `tolerance` or after `max_runs`. Raises ValueError if no rate tried passes.
    """
    if start_rps <= 0 or step <= 1 or tolerance <= 0 or max_runs < 2:
        raise ValueError(
            f"start_rps {start_rps:g} and tolerance {tolerance:g} must be above 0, step {step:g} above 1, and max_runs "
            f"{max_runs} at least 2"
        )
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
            "the SLOs cannot be met at any load, or the runs are too short: relax the SLOs or take longer runs"
        )
    return RateSearch(low, high, tuple(points))


def bracket(points: list[ProbedRate], threshold: float) -> tuple[float | None, float | None]:
    """Returns the highest passing rate (goodput rate at least `threshold`) below every failing one, and the lowest
    failing rate. Each is None if there is no such rate."""
    failing = min((p.rate_rps for p in points if p.goodput_rate < threshold), default=None)
    passing = [p.rate_rps for p in points if p.goodput_rate >= threshold and (failing is None or p.rate_rps < failing)]
    return max(passing, default=None), failing
