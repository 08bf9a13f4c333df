"""Makes a bursty trace from published statistics, for use when no recorded trace is available.

H-MAS §2 says of the Azure trace: mean 45.15 requests/s, peak 176 in one second, the largest change from one second to
the next 140, a five-second burst of up to 167 additional requests. The rates are scaled to the requested mean, so that
the peak stays 3.9 times the mean; the counts of each second carry Poisson noise besides.
"""

import numpy as np
from numpy.typing import NDArray

from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.workloads.arrivals import inhomogeneous
from hmas_loadgen.workloads.lengths import azure_like_inputs, azure_like_outputs

MEAN_RPS = 45.15
PEAK_RPS = 176.0
STEP_RPS = 140.0
BURST_EVERY_S = 40.0
# One burst, second by second, as shares of its height. With the height of the peak, 176 - 45.15, the seconds add up to
# 167.
BURST_SHAPE = (1.0, 0.16, 0.08, 0.025, 0.011)
DIP = (PEAK_RPS - STEP_RPS) / MEAN_RPS  # rate in the second before the highest burst, relative to the mean
JITTER = 0.15  # standard deviation of the logarithm of the intensity outside bursts, from second to second


def burst_intensity(duration_s: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the arrival rate of each second relative to the mean, with one burst of the published height and lower
    ones at random."""
    seconds = max(1, int(np.ceil(duration_s)))
    level = np.exp(rng.normal(0.0, JITTER, seconds))
    starts = np.flatnonzero(rng.random(seconds) < 1 / BURST_EVERY_S)
    highest = int(rng.integers(seconds // 4, max(seconds // 4 + 1, seconds * 3 // 4)))
    full = PEAK_RPS / MEAN_RPS - 1.0
    excess = np.zeros(seconds)
    for start, height in [*((int(s), full * rng.uniform(0.2, 0.7)) for s in starts), (highest, full)]:
        for offset, share in enumerate(BURST_SHAPE[: seconds - start]):
            excess[start + offset] = max(excess[start + offset], height * share)
    # The level between bursts is lowered, so that bursts do not change the mean.
    level *= max(0.1, 1.0 - excess.mean()) / level.mean()
    if highest > 0:
        level[highest - 1], excess[highest - 1] = DIP, 0.0
    level[highest] = 1.0
    intensity = level + excess
    return np.minimum(intensity, PEAK_RPS / MEAN_RPS)


def published_trace(rate_rps: float, duration_s: float, seed: int) -> Trace:
    """Makes a trace with the bursts and lengths of the Azure trace and an expected mean of `rate_rps`. Raises
    ValueError unless rate and duration are above 0."""
    if rate_rps <= 0 or duration_s <= 0:
        raise ValueError(f"rate {rate_rps:g} and duration {duration_s:g} must both be above 0")
    rng = np.random.default_rng([seed, 0x617A75])
    rates = rate_rps * burst_intensity(duration_s, rng)
    rates *= rate_rps / rates.mean()
    arrivals = inhomogeneous(lambda t: rates[t.astype(np.int64)], float(rates.max()), duration_s, rng)
    if not arrivals.size:
        arrivals = np.zeros(1)
    inputs, outputs = azure_like_inputs(arrivals, rng), azure_like_outputs(arrivals.size, rng)
    rows = [
        TraceRow(arrival_s=at, input_tokens=tokens_in, output_tokens=tokens_out)
        for at, tokens_in, tokens_out in zip(arrivals.tolist(), inputs.tolist(), outputs.tolist(), strict=True)
    ]
    note = f"generated from the statistics of H-MAS §2 at {rate_rps:g} requests/s for {duration_s:g} s, seed {seed}"
    return Trace(name="azure-like", rows=tuple(rows), note=note, span_s=duration_s)
