"""Draws arrival instants, seconds from 0, by processes: Poisson, Gamma, and Poisson with a rate that varies in time
(H-MAS Eq. 13)."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Instants = NDArray[np.float64]
Rate = Callable[[Instants], Instants]  # requests per second at each instant


def poisson(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Instants:
    """Draws Poisson arrivals of a constant rate."""
    return gamma(rate_rps, 1.0, duration_s, rng)


def gamma(rate_rps: float, cv: float, duration_s: float, rng: np.random.Generator) -> Instants:
    """Draws arrivals whose gaps follow a Gamma distribution with coefficient of variation `cv`: 1 is Poisson, more is
    burstier. Raises ValueError unless all numbers are above 0."""
    if rate_rps <= 0 or cv <= 0 or duration_s <= 0:
        raise ValueError(f"rate {rate_rps:g}, cv {cv:g} and duration {duration_s:g} must all be above 0")
    shape = 1.0 / cv**2
    instants = np.empty(0)
    at = 0.0
    while at < duration_s:
        gaps = rng.gamma(shape, 1.0 / (shape * rate_rps), max(64, int(rate_rps * duration_s * 1.1)))
        block = at + np.cumsum(gaps)
        instants = np.concatenate((instants, block))
        at = float(block[-1])
    return instants[instants < duration_s]


def inhomogeneous(rate: Rate, peak_rps: float, duration_s: float, rng: np.random.Generator) -> Instants:
    """Draws Poisson arrivals of a varying rate by thinning (Lewis and Shedler 1979). `rate` must never exceed
    `peak_rps`."""
    candidates = poisson(peak_rps, duration_s, rng)
    kept = rng.random(candidates.size) * peak_rps < rate(candidates)
    return candidates[kept]


STRESS_DURATION_S = 600.0


def stress_rate(base_rps: float) -> Rate:
    """Returns the rate over time of the stress test (H-MAS Eq. 13) as a function: 0.6 times `base_rps` until 200 s, 1.4
    times until 400 s, then 1.8 and 0.2 times by turns of 10 s. The paper's base rate is 40 requests/s."""

    def rate(t: Instants) -> Instants:
        fluctuating = np.where(t % 20 < 10, 1.8, 0.2)
        factors = np.where(t < 200, 0.6, np.where(t < 400, 1.4, fluctuating))
        return base_rps * factors

    return rate


def stress_test(base_rps: float, rng: np.random.Generator) -> Instants:
    """Draws the arrivals of the 600 s stress test (H-MAS App. D.2)."""
    return inhomogeneous(stress_rate(base_rps), 1.8 * base_rps, STRESS_DURATION_S, rng)
