"""Builds workloads by name: with arrivals and lengths from the load generator, task types and SLOs of H-MAS App. E.5,
and tenants."""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from hmas.sim.offered import offered
from hmas.sim.workload import Workload
from hmas_lab.answered import AnsweredPrompts, held_apart
from hmas_loadgen.slo import TASKS, annotate, assign_tenants
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace, TraceRow, from_zero
from hmas_loadgen.workloads.arrivals import gamma
from hmas_loadgen.workloads.lengths import task_lengths
from hmas_loadgen.workloads.published import published_trace
from hmas_loadgen.workloads.scaling import to_rate, window
from hmas_loadgen.workloads.slices import burst_slice, drift_slice, semantic_drift, shift_slice, stress_slice

ANSWERED_KINDS = ("semantic", "trace")  # workloads that take labelled prompts where there are any
TENANTS = (("alpha", 4.0), ("beta", 3.0), ("gamma", 2.0), ("delta", 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """The description of a workload.

    - `kind`: mix (Azure-like bursty arrivals, 13 task types with their own lengths); poisson or gamma (the same task
      types and lengths, with gaps between arrivals whose coefficient of variation is `cv`, 1 for poisson); burst,
      drift, shift, stress (H-MAS §4.2, Eq. 13); semantic (App. D.2); azure-like (arrivals and lengths of §2); or trace,
      which reads `file` from `start_s` on and scales it to the rate by superposing or thinning requests, or by
      stretching time if `by_time`.
    - `duration_s`: the time in s over which requests are offered.
    - `prompts`: folder of labelled prompts, or empty. Each request gets one whose answer was
      about as long as its own (`hmas_lab.answered`), and its task type, if the trace gives none. Requests for which
      there is none, and those of all other workloads, get prompts of their task type in our own words.
    - `stated`: if true, clients state the SLO of each request; otherwise they state only its importance, and the task
      type that perception finds gives the SLO.
    """

    kind: str
    duration_s: float = 600.0
    file: str = ""
    start_s: float = 0.0
    cv: float = 1.0
    by_time: bool = False
    stated: bool = False
    prompts: str = ""
    tenants: tuple[tuple[str, float], ...] = TENANTS  # name and share of requests; empty keeps the trace's tenants

    @property
    def name(self) -> str:
        return Path(self.file).name.split(".")[0] if self.kind == "trace" else self.kind

    def labelled(self, data: Path | None) -> "WorkloadSpec":
        """Returns the description with the labelled prompts of the folder `data`, if it has any and this kind of
        workload takes them."""
        folder = data / "prompts" if data else None
        found = folder is not None and folder.is_dir() and self.kind in ANSWERED_KINDS
        return replace(self, prompts=str(folder) if found else "")


def build(spec: WorkloadSpec, rate_rps: float, seed: int, *, prompts: bool = False) -> Workload:
    """Builds the workload at a mean rate of `rate_rps` requests per second, with the text of each request if `prompts`.
    Raises ValueError for an unknown kind and TraceError for a trace file that cannot be used."""
    trace = _trace(spec, rate_rps, seed)
    if spec.prompts:
        trace = _answered(trace, held_apart(Path(spec.prompts)), seed)
    trace = annotate(trace, seed)
    if spec.tenants:
        trace = assign_tenants(trace, dict(spec.tenants), seed)
    return offered(trace, spec.name, spec.duration_s, seed, stated=spec.stated, prompts=prompts)


def _answered(trace: Trace, pairs: AnsweredPrompts, seed: int) -> Trace:
    """Returns the trace with a labelled prompt for each row without text whose length some answer has; the lengths
    stay."""
    rows: list[TraceRow] = []
    found = 0
    for i, row in enumerate(trace.rows):
        pair = None
        if row.prompt is None:
            pair = pairs.draw(row.output_tokens, row.input_tokens, row.task, Random(f"{seed} answered {i}"))
        found += pair is not None
        rows.append(row if pair is None else replace(row, prompt=pair.text, task=pair.task))
    return trace.derived(rows, f"{found / max(1, len(rows)):.0%} with labelled prompts of the test part, seed {seed}")


def _trace(spec: WorkloadSpec, rate_rps: float, seed: int) -> Trace:
    match spec.kind:
        case "mix":
            return _mixed(published_trace(rate_rps, spec.duration_s, seed), seed)
        case "poisson" | "gamma":
            arrivals = gamma(rate_rps, spec.cv, spec.duration_s, np.random.default_rng([seed, 0x67616D]))
            rows = [TraceRow(arrival_s=float(t), input_tokens=1, output_tokens=1) for t in arrivals]
            return _mixed(
                Trace(name=spec.kind, rows=from_zero(rows), note=f"{spec.kind} at {rate_rps:g}/s, seed {seed}"), seed
            )
        case "azure-like":
            return published_trace(rate_rps, spec.duration_s, seed)
        case "burst":
            return burst_slice(rate_rps, spec.duration_s, seed)
        case "drift":
            return drift_slice(rate_rps, spec.duration_s, seed)
        case "shift":
            return shift_slice(rate_rps, spec.duration_s, seed)
        case "stress":
            return _stretched(stress_slice(rate_rps, seed), spec.duration_s)
        case "semantic":
            return _semantic(spec, rate_rps, seed)
        case "trace":
            return _recorded(spec, rate_rps, seed)
    raise ValueError(
        f"unknown kind of workload {spec.kind!r}: choose mix, poisson, gamma, azure-like, burst, drift, shift, stress, "
        "semantic or trace"
    )


def _mixed(trace: Trace, seed: int) -> Trace:
    """Returns the trace with task types drawn evenly, and lengths drawn from each type's own distribution."""
    rng = np.random.default_rng([seed, 0x6D6978])
    tasks = [TASKS[int(i)] for i in rng.integers(0, len(TASKS), len(trace.rows))]
    inputs, outputs = task_lengths(tasks, rng)
    columns = zip(trace.rows, tasks, inputs.tolist(), outputs.tolist(), strict=True)
    rows = (replace(row, task=task, input_tokens=i, output_tokens=o) for row, task, i, o in columns)
    return trace.derived(rows, "13 task types evenly, each with its own lengths")


STRESS_S = 600.0


def _stretched(trace: Trace, duration_s: float) -> Trace:
    """Shortens the stress trace of H-MAS Eq. 13 (three phases of 200 s) to `duration_s`: each phase keeps its rate and
    is cut to its first part, in proportion."""
    if duration_s >= STRESS_S:
        return trace
    share = duration_s / STRESS_S
    kept = [r for r in trace.rows if (r.arrival_s % 200.0) < 200.0 * share]
    rows = [replace(r, arrival_s=r.arrival_s // 200.0 * 200.0 * share + r.arrival_s % 200.0) for r in kept]
    return trace.derived(from_zero(rows), f"each phase cut to its first {share:.0%}")


def _semantic(spec: WorkloadSpec, rate_rps: float, seed: int) -> Trace:
    """Returns the regimes of H-MAS App. D.2 on Azure-like arrivals; a shorter workload shortens all regimes in
    proportion."""
    stretch = STRESS_S / spec.duration_s
    arrivals = published_trace(rate_rps, spec.duration_s, seed)
    slow = arrivals.derived([replace(r, arrival_s=r.arrival_s * stretch) for r in arrivals.rows], "")
    drift = semantic_drift(slow, seed)
    return drift.derived([replace(r, arrival_s=r.arrival_s / stretch) for r in drift.rows], "")


def _recorded(spec: WorkloadSpec, rate_rps: float, seed: int) -> Trace:
    trace = read_trace(spec.file, seed=seed, duration_s=spec.duration_s, rate_rps=rate_rps)
    if "client_rates" in spec.file:
        return trace
    if not spec.by_time:
        trace = to_rate(trace, rate_rps, seed)
        start = min(spec.start_s, max(0.0, trace.duration_s - spec.duration_s))
        return _cut(trace, start, spec.duration_s)
    return _cut(to_rate(trace, rate_rps, seed, by_time=True), spec.start_s, spec.duration_s)


def _cut(trace: Trace, start_s: float, duration_s: float) -> Trace:
    part = window(trace, start_s, duration_s)
    return part.derived(from_zero(list(part.rows)), "")
