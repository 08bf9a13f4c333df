"""The trace that both sides are offered."""

from dataclasses import dataclass, replace
from math import ceil, log
from pathlib import Path

import numpy as np

from hmas_loadgen.slo import annotate
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.workloads.published import published_trace
from hmas_loadgen.workloads.scaling import to_rate, window

DENSER = 4.0  # the rates between two powers of it are samples of one trace
SPARE_TOKENS = 512  # of the context window, for the chat template and the count's rounding


@dataclass(frozen=True, slots=True)
class SloFactors:
    """By which the SLOs of Table 6 are multiplied: how slow an engine computes prompts, and its steps, relative to
    those for which the table was written."""

    ttft: float = 1.0
    tpot: float = 1.0


@dataclass(frozen=True, slots=True)
class ReplayWorkload:
    """A trace file, or none: then one is made from the published statistics of the Azure trace (H-MAS §2).

    `max_model_len`: rows that cannot fit the engines' context are left out, for both sides alike. `slo_factors`: the
    pace of the engines.
    """

    path: Path | None
    max_model_len: int
    slo_factors: SloFactors = SloFactors()

    @property
    def name(self) -> str:
        return self.path.name if self.path else "Azure-like bursty trace"

    def own_rate_rps(self) -> float:
        """The file's mean rate. Raises ValueError for a trace whose requests all arrive at once."""
        trace = read_trace(self.path) if self.path else None
        if trace is None or trace.duration_s == 0:
            raise ValueError("the trace has no rate of its own: give --rate")
        return len(trace.rows) / trace.duration_s

    def at(self, rate_rps: float, seconds: float, seed: int) -> Trace:
        """`seconds` of it at a mean of `rate_rps`, with task types and SLOs (H-MAS App. E.5). Raises ValueError."""
        if self.path is None:
            trace = self._made(rate_rps, seconds, seed)
        else:
            trace = self._slice(self._fitting(read_trace(self.path)), rate_rps, seconds, seed)
        trace = annotate(trace, seed)
        return trace if self.slo_factors == SloFactors() else self._paced(trace)

    def _made(self, rate_rps: float, seconds: float, seed: int) -> Trace:
        """Exactly that many requests, which a short draw misses by a fifth: a sample of a denser trace, which keeps its
        bursts. A higher rate out of the same one adds requests to a lower rate's, so that a search sees little noise.
        """
        dense_rps = float(DENSER ** ceil(log(2.0 * rate_rps, DENSER)))
        dense = self._fitting(published_trace(dense_rps, seconds, seed))
        order = np.random.default_rng([seed, 0x6D616465]).permutation(len(dense.rows))
        kept = sorted(order[: max(1, round(rate_rps * seconds))])
        return dense.derived([dense.rows[n] for n in kept], f"sampled to {rate_rps:g} requests/s")

    def _fitting(self, trace: Trace) -> Trace:
        """What the engines' context can take; the rate is that of these."""
        rows = [r for r in trace.rows if r.input_tokens + r.output_tokens <= self.max_model_len - SPARE_TOKENS]
        if not rows:
            raise ValueError(f"no request of the trace fits the engines' context of {self.max_model_len} tokens")
        return trace.derived(rows, f"requests within {self.max_model_len} tokens")

    def _paced(self, trace: Trace) -> Trace:
        by = self.slo_factors
        rows = [
            replace(row, slo=replace(slo, ttft_s=slo.ttft_s * by.ttft, tpot_s=slo.tpot_s * by.tpot))
            if (slo := row.slo)
            else row
            for row in trace.rows
        ]
        return trace.derived(rows, f"SLOs times {by.ttft:g} (TTFT) and {by.tpot:g} (TPOT)")

    @staticmethod
    def _slice(trace: Trace, rate_rps: float, seconds: float, seed: int) -> Trace:
        """A window of the file, a different one for each seed where it is long enough, scaled to the rate."""
        spare_s = trace.duration_s - seconds
        start_s = 0.0 if spare_s <= 0 else (seed * seconds) % spare_s
        return to_rate(window(trace, start_s, seconds) if spare_s > 0 else trace, rate_rps, seed)
