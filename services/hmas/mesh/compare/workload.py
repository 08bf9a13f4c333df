"""The trace that both sides of a comparison receive."""

from dataclasses import dataclass, replace
from math import ceil, log
from pathlib import Path

import numpy as np

from hmas_loadgen.slo import annotate
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.workloads.published import published_trace
from hmas_loadgen.workloads.scaling import to_rate, window

DENSER = 4.0  # all rates between two powers of it are samples of one trace
SPARE_TOKENS = 512  # kept free in the context, for the chat template and for rounding of the token count


@dataclass(frozen=True, slots=True)
class SloFactors:
    """The factors by which the SLOs of H-MAS Table 6 are multiplied.

    They say how many times slower the engine computes prompts (`ttft`) and steps (`tpot`) than the engines for which
    the table was written.
    """

    ttft: float = 1.0
    tpot: float = 1.0


@dataclass(frozen=True, slots=True)
class ReplayWorkload:
    """The requests to replay: a trace file, or one generated from the Azure trace's published statistics (H-MAS §2).

    `path` None means a generated trace. Requests longer than the engines' context of `max_model_len` tokens are left
    out, for both sides alike. `slo_factors` adapt the SLOs to the engines' speed.
    """

    path: Path | None
    max_model_len: int
    slo_factors: SloFactors = SloFactors()

    @property
    def name(self) -> str:
        return self.path.name if self.path else "Azure-like bursty trace"

    def own_rate_rps(self) -> float:
        """Returns the trace file's mean rate in requests per second.

        Raises ValueError without a file, or if all its requests arrive at once.
        """
        trace = read_trace(self.path) if self.path else None
        if trace is None or trace.duration_s == 0:
            raise ValueError("a trace whose requests all arrive at once has no rate of its own: give --rate")
        return len(trace.rows) / trace.duration_s

    def at(self, rate_rps: float, seconds: float, seed: int) -> Trace:
        """Returns `seconds` of the workload at a mean of `rate_rps`, with task types and SLOs (H-MAS App. E.5).

        Raises ValueError if the file is not a trace, or none of its requests fits the context.
        """
        if self.path is None:
            trace = self._made(rate_rps, seconds, seed)
        else:
            trace = self._slice(self._fitting(read_trace(self.path)), rate_rps, seconds, seed)
        trace = annotate(trace, seed)
        return trace if self.slo_factors == SloFactors() else self._paced(trace)

    def _made(self, rate_rps: float, seconds: float, seed: int) -> Trace:
        """Generates a trace with exactly rate × seconds requests, as a sample of a denser trace, whose bursts it keeps.

        A short trace drawn at the rate itself would miss it by up to a fifth. Samples of one dense trace contain one
        another: a higher rate adds requests to those of a lower rate, so that a search over rates sees little noise.
        """
        dense_rps = float(DENSER ** ceil(log(2.0 * rate_rps, DENSER)))
        dense = self._fitting(published_trace(dense_rps, seconds, seed))
        order = np.random.default_rng([seed, 0x6D616465]).permutation(len(dense.rows))
        kept = sorted(order[: max(1, round(rate_rps * seconds))])
        return dense.derived([dense.rows[n] for n in kept], f"sampled to {rate_rps:g} requests/s")

    def _fitting(self, trace: Trace) -> Trace:
        """Returns the trace without requests that exceed the engines' context. Raises ValueError if none is left."""
        rows = [r for r in trace.rows if r.input_tokens + r.output_tokens <= self.max_model_len - SPARE_TOKENS]
        if not rows:
            raise ValueError(
                f"no request of the trace fits the engines' context of {self.max_model_len} tokens: use another trace"
            )
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
        """Returns a window of the trace, scaled to the rate; in a long trace each seed gets another window."""
        spare_s = trace.duration_s - seconds
        start_s = 0.0 if spare_s <= 0 else (seed * seconds) % spare_s
        return to_rate(window(trace, start_s, seconds) if spare_s > 0 else trace, rate_rps, seed)
