"""Loads the requests of a run from a trace file or makes them from a named workload, then scales and annotates them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hmas_loadgen.slo import annotate, assign_tenants
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.registry import PUBLIC_TRACES
from hmas_loadgen.traces.row import Trace, TraceError, TraceRow
from hmas_loadgen.workloads import arrivals, slices
from hmas_loadgen.workloads.lengths import azure_like_inputs, azure_like_outputs
from hmas_loadgen.workloads.published import MEAN_RPS, published_trace
from hmas_loadgen.workloads.scaling import compress, multiply, to_rate, window

Workload = Callable[[float, float, int], Trace]  # (mean requests per second, duration in s, seed) -> trace
DEFAULT_DURATION_S = 60.0


def _renewal(cv: float, name: str) -> Workload:
    def make(rate_rps: float, duration_s: float, seed: int) -> Trace:
        import numpy as np

        rng = np.random.default_rng([seed, 0x72656E])
        instants = arrivals.gamma(rate_rps, cv, duration_s, rng)
        inputs, outputs = azure_like_inputs(np.zeros(instants.size), rng), azure_like_outputs(instants.size, rng)
        columns = zip(instants.tolist(), inputs.tolist(), outputs.tolist(), strict=True)
        note = f"Gamma arrivals of CV {cv:g} at {rate_rps:g} requests/s, seed {seed}"
        return Trace(
            name=name,
            rows=tuple(TraceRow(arrival_s=t, input_tokens=i, output_tokens=o) for t, i, o in columns),
            note=note,
            span_s=duration_s,
        )

    return make


def _stress(rate_rps: float, duration_s: float, seed: int) -> Trace:
    return window(slices.stress_slice(rate_rps, seed), 0.0, duration_s)


def _semantic(rate_rps: float, duration_s: float, seed: int) -> Trace:
    return slices.semantic_drift(published_trace(rate_rps, duration_s, seed), seed)


WORKLOADS: Mapping[str, Workload] = {
    "azure-like": published_trace,
    "poisson": _renewal(1.0, "poisson"),
    "gamma": _renewal(2.0, "gamma"),
    "stress": _stress,
    "burst": slices.burst_slice,
    "drift": slices.drift_slice,
    "shift": slices.shift_slice,
    "semantic": _semantic,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a trace comes from and how it is changed. `trace` is a file's path or a name of `WORKLOADS`.

    `start_s` and `duration_s` cut a window; None means to the end. `rate_rps` scales to that mean rate, by thinning and
    superposition, or by time compression with `by_time`; `factor` multiplies the rate instead. `speed` compresses time
    after the window was cut. `tenants` maps each tenant's name to its share of the requests.
    """

    trace: str = "azure-like"
    start_s: float = 0.0
    duration_s: float | None = None
    rate_rps: float | None = None
    factor: float | None = None
    by_time: bool = False
    speed: float = 1.0
    seed: int = 0
    tenants: Mapping[str, float] = field(default_factory=dict)

    def load(self) -> Trace:
        """Returns the trace, scaled and with an SLO for every row. Raises TraceError if the file cannot be read,
        ValueError if an option does not fit the trace."""
        trace = self._made() if self.trace in WORKLOADS else self._read()
        if self.factor is not None:
            trace = multiply(trace, self.factor, self.seed)
        if self.speed != 1.0:
            trace = compress(trace, self.speed)
        trace = annotate(trace, self.seed)
        return assign_tenants(trace, self.tenants, self.seed) if self.tenants else trace

    def _made(self) -> Trace:
        rate = self.rate_rps or MEAN_RPS
        return WORKLOADS[self.trace](rate, self.duration_s or DEFAULT_DURATION_S, self.seed)

    def _read(self) -> Trace:
        path = Path(self.trace)
        if not path.exists():
            known = ", ".join(WORKLOADS)
            hint = f" Run 'hmas load traces fetch {self.trace}' first." if self.trace in PUBLIC_TRACES else ""
            raise TraceError(path, None, "no such file", f"Give the path of a trace file or one of: {known}.{hint}")
        trace = read_trace(
            path, seed=self.seed, start_s=self.start_s, duration_s=self.duration_s, rate_rps=self.rate_rps
        )
        if trace.drawn:
            return trace  # the window and the rate were applied when the rows were drawn
        if self.start_s or self.duration_s is not None:
            trace = window(trace, self.start_s, self.duration_s)
        if self.rate_rps is not None:
            trace = to_rate(trace, self.rate_rps, self.seed, by_time=self.by_time)
        return trace
