"""Computes, for any trace, the statistics by which H-MAS §2 describes the Azure trace: rates and bursts, quantiles
of input and output lengths, shares of short and of long inputs."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hmas_loadgen.traces.row import Trace

LONG_TOKENS = 2048
BURST_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStatistics:
    """Statistics of a trace. Rates count requests in whole seconds: `peak_rps` is the highest, `step_rps` the largest
    change from one second to the next. `burst_requests` is how many requests five seconds hold at most above their
    mean. `gap_cv` is the CV of the gaps between arrivals. `input_` and `output_` are quantiles in tokens.
    `long_share_swing` is max - min of the per-minute share of inputs above 2048 tokens. Shares are 0 to 1."""

    requests: int
    duration_s: float
    mean_rps: float
    peak_rps: int
    step_rps: int
    burst_requests: float
    gap_cv: float
    input_p50: float
    input_p95: float
    input_p99: float
    output_p50: float
    output_p95: float
    output_p99: float
    short_share: float  # input <= 512
    long_share: float  # input > 2048
    long_share_swing: float
    shared_prefix_share: float  # of the prompts' hash blocks, those that an earlier block repeats


def statistics(trace: Trace) -> TraceStatistics:
    """Computes the statistics of a trace with at least one request."""
    arrivals = np.array([row.arrival_s for row in trace.rows])
    inputs = np.array([row.input_tokens for row in trace.rows])
    outputs = np.array([row.output_tokens for row in trace.rows])
    counts = np.bincount(arrivals.astype(np.int64))
    mean = len(arrivals) / max(trace.duration_s, 1.0)
    stretch = np.convolve(counts, np.ones(BURST_S))[BURST_S - 1 :]
    gaps = np.diff(arrivals)
    input_p50, input_p95, input_p99 = map(float, np.percentile(inputs, (50, 95, 99)))
    output_p50, output_p95, output_p99 = map(float, np.percentile(outputs, (50, 95, 99)))
    return TraceStatistics(
        requests=len(arrivals),
        duration_s=trace.duration_s,
        mean_rps=mean,
        peak_rps=int(counts.max()),
        step_rps=int(np.abs(np.diff(counts)).max()) if counts.size > 1 else 0,
        burst_requests=float(stretch.max() - BURST_S * mean),
        gap_cv=float(gaps.std() / gaps.mean()) if gaps.size and gaps.mean() > 0 else float("nan"),
        input_p50=input_p50,
        input_p95=input_p95,
        input_p99=input_p99,
        output_p50=output_p50,
        output_p95=output_p95,
        output_p99=output_p99,
        short_share=float((inputs <= 512).mean()),
        long_share=float((inputs > LONG_TOKENS).mean()),
        long_share_swing=_swing(arrivals, inputs > LONG_TOKENS),
        shared_prefix_share=_shared(trace),
    )


def _swing(arrivals: NDArray[np.float64], long: NDArray[np.bool_]) -> float:
    minutes = (arrivals // 60).astype(np.int64)
    totals = np.bincount(minutes)
    longs = np.bincount(minutes, weights=long)
    shares = longs[totals > 0] / totals[totals > 0]
    return float(shares.max() - shares.min())


def _shared(trace: Trace) -> float:
    seen: set[int] = set()
    blocks = repeated = 0
    for row in trace.rows:
        for block in row.hash_ids:
            blocks += 1
            repeated += block in seen
            seen.add(block)
    return repeated / blocks if blocks else 0.0
