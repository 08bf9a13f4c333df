"""Turns the settlements of a run into the columns of the paper's tables and the series of its figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.outcome import Outcome
from hmas.laws.scoring import (
    Settlement,
    is_ok,
    mismatch,
    quantile,
    score,
    service_gain,
    stability,
    tpot_ok,
    ttft_ok,
    windows,
)
from hmas.sim.result import SimResult
from hmas.sim.workload import Workload

MISMATCH_WINDOW_S = 10.0
MISMATCH_EPSILON = 1.0  # tokens/s
SERIES_S = 10.0
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Mean and 95 % quantile of the mismatch M_rho (H-MAS Eq. 7), taken over a sliding window of `MISMATCH_WINDOW_S`
    and sampled every second of the time in which requests are offered."""

    mean: float
    p95: float


def _served_per_second(settlements: Sequence[Settlement], seconds: int) -> Floats:
    """Returns the tokens served in each second: a prompt counts in the second of its first output token, and output
    tokens are spread evenly from the first token to the last."""
    served = np.zeros(seconds + 1)
    for s in settlements:
        if s.ttft_s is None or s.outcome is not Outcome.FINISHED or s.last_token_s is None:
            continue
        first, last = s.offered_s + s.ttft_s, s.offered_s + s.last_token_s
        served[min(int(first), seconds)] += s.prompt_tokens
        low, high = min(int(first), seconds), min(int(last), seconds)
        served[low : high + 1] += s.output_tokens / (int(last) - int(first) + 1)
    return served[:seconds]


def workload_mismatch(workload: Workload, settlements: Sequence[Settlement]) -> Mismatch:
    """Returns the mismatch between the arriving tokens per second (true lengths) and the measured served tokens per
    second, both averaged over `MISMATCH_WINDOW_S`."""
    seconds = max(1, int(workload.duration_s))
    arriving = np.zeros(seconds)
    for r in workload.requests:
        arriving[min(int(r.request.arrival_s), seconds - 1)] += r.request.prompt_tokens + r.output_tokens
    served = _served_per_second(settlements, seconds)
    width = int(MISMATCH_WINDOW_S)
    window = np.ones(width) / width
    rates = [np.convolve(x, window)[width - 1 : seconds] for x in (arriving, served)]
    values = sorted(mismatch(float(a), float(m), MISMATCH_EPSILON) for a, m in zip(*rates, strict=True))
    return Mismatch(sum(values) / max(len(values), 1), quantile(values, 0.95))


@dataclass(frozen=True, slots=True)
class EsgParts:
    """The ESG rate (H-MAS Eq. 6), in value per second, and three parts of it: the value of requests that met their
    TTFT SLO, of those that met their TPOT SLO, and (`throughput`) of all that finished, without any discount."""

    ttft: float
    tpot: float
    throughput: float
    total: float


def esg_parts(settlements: Sequence[Settlement], duration_s: float) -> EsgParts:
    gains = [(service_gain(s), s) for s in settlements]
    return EsgParts(
        sum(g for g, s in gains if ttft_ok(s)) / duration_s,
        sum(g for g, s in gains if tpot_ok(s)) / duration_s,
        sum(s.prompt_tokens + 2.0 * s.output_tokens for g, s in gains if g > 0) / duration_s,
        sum(g for g, _ in gains) / duration_s,
    )


def _peak_window(settlements: Sequence[Settlement], duration_s: float, width_s: float = 60.0) -> list[Settlement]:
    """Returns the requests offered in the most congested window of `width_s`: the one with the most offered tokens."""
    count = max(1, int(duration_s // width_s))
    load = [0.0] * count
    for s in settlements:
        load[min(int(s.offered_s / width_s), count - 1)] += s.prompt_tokens + s.output_tokens
    start = load.index(max(load)) * width_s
    return [s for s in settlements if start <= s.offered_s < start + width_s]


def _series(settlements: Sequence[Settlement], duration_s: float) -> dict[str, list[float]]:
    """Returns, for each window of 10 s, the goodput rate, the offered and the finished requests per second, the ESG
    rate, and the mean TTFT in s of the requests offered in the window."""
    found = windows(settlements, duration_s, SERIES_S)
    ttft: list[list[float]] = [[] for _ in found]
    finished = [0] * len(found)
    for s in settlements:
        if s.ttft_s is not None:
            ttft[min(int(s.offered_s / SERIES_S), len(found) - 1)].append(s.ttft_s)
        if s.last_token_s is not None and (at := s.offered_s + s.last_token_s) < duration_s:
            finished[min(int(at / SERIES_S), len(found) - 1)] += 1
    return {
        "goodput": [round(w.goodput, 4) for w in found],
        "offered": [w.offered / SERIES_S for w in found],
        "esg_rate": [round(w.esg_rate, 2) for w in found],
        "throughput": [f / SERIES_S for f in finished],
        "ttft_s": [round(sum(t) / len(t), 4) if t else 0.0 for t in ttft],
    }


def _by(settlements: Sequence[Settlement], names: Sequence[str]) -> dict[str, list[int]]:
    """Returns {name: [offered requests, requests that met their SLOs]}; `names` has one entry per settlement."""
    shares: dict[str, list[int]] = {}
    for s, name in zip(settlements, names, strict=True):
        row = shares.setdefault(name, [0, 0])
        row[0] += 1
        row[1] += is_ok(s)
    return dict(sorted(shares.items()))


def _length_deciles(workload: Workload) -> list[str]:
    lengths = sorted(r.output_tokens for r in workload.requests)
    edges = [lengths[min(len(lengths) - 1, i * len(lengths) // 10)] for i in range(1, 10)]
    return [str(sum(r.output_tokens >= edge for edge in edges)) for r in workload.requests]


def analyse(workload: Workload, result: SimResult) -> dict[str, Any]:
    """Returns every figure that a page of results may show of a run, as plain data that JSON can hold."""
    rows, duration_s = result.settlements, result.duration_s
    weights = {r.request.tenant: r.request.weight for r in workload.requests}
    peak = _peak_window(rows, duration_s)
    return {
        "score": asdict(score(rows, duration_s, weights)),
        "stability": asdict(stability(rows, duration_s)),
        "mismatch": asdict(workload_mismatch(workload, rows)),
        "esg": asdict(esg_parts(rows, duration_s)),
        "esg_peak": asdict(esg_parts(peak, 60.0)),
        "series": _series(rows, duration_s),
        "tasks": _by(rows, [str(s.task) for s in rows]),
        "tenants": _by(rows, [s.tenant for s in rows]),
        "deciles": _by(rows, _length_deciles(workload)),
        "run": asdict(result.run),
    }
