"""Changes the load of a trace by window, speed or rate. Each function notes in `Trace.note` what it did."""

from dataclasses import replace

import numpy as np

from hmas_loadgen.traces.row import Trace, TraceRow


def window(trace: Trace, start_s: float, duration_s: float | None = None) -> Trace:
    """Returns the requests of [start_s, start_s + duration_s), with times counted from `start_s`. `duration_s` None
    means to the end. Raises ValueError if no request arrives in the window."""
    end_s = float("inf") if duration_s is None else start_s + duration_s
    rows = [replace(r, arrival_s=r.arrival_s - start_s) for r in trace.rows if start_s <= r.arrival_s < end_s]
    if not rows:
        raise ValueError(
            f"no request of {trace.name} arrives in [{start_s:g}, {end_s:g}) s of its {trace.duration_s:g} s: "
            "choose another start or duration"
        )
    span_s = min(end_s, max(trace.duration_s, rows[-1].arrival_s + start_s)) - start_s
    return trace.derived(rows, f"window from {start_s:g} s to {end_s:g} s", span_s)


def compress(trace: Trace, speed: float) -> Trace:
    """Returns the same requests `speed` times as fast (time compression). Bursts get shorter and steeper. Raises
    ValueError unless `speed` is above 0."""
    if speed <= 0:
        raise ValueError(f"speed {speed:g} must be above 0")
    rows = (replace(row, arrival_s=row.arrival_s / speed) for row in trace.rows)
    return trace.derived(rows, f"time compressed {speed:g} times", trace.duration_s / speed)


def multiply(trace: Trace, factor: float, seed: int) -> Trace:
    """Returns a trace of the same duration with `factor` times the rate. Below 1, each request is kept with probability
    `factor` (thinning). Above 1, copies of the trace are added, each rotated by a random time so that bursts do not
    coincide; a fractional copy is thinned (superposition, which smooths bursts as many independent users would). Raises
    ValueError unless `factor` is above 0."""
    if factor <= 0:
        raise ValueError(f"the rate factor {factor:g} must be above 0")
    rng = np.random.default_rng([seed, 0x72617465])
    whole, part = divmod(factor, 1.0)
    rows: list[TraceRow] = list(trace.rows) if whole else []
    for _ in range(1, int(whole)):
        rows += _rotated(trace, trace.rows, float(rng.random()))
    if part:
        kept = [row for row, draw in zip(trace.rows, rng.random(len(trace.rows)), strict=True) if draw < part]
        rows += _rotated(trace, kept, float(rng.random())) if whole else kept
    if not rows:
        rows = list(trace.rows[:1])
    how = "thinned" if factor < 1 else "superposed"
    note = f"{how} to {factor:.4g} times the rate, seed {seed}"
    return trace.derived(sorted(rows, key=lambda row: row.arrival_s), note, trace.duration_s)


def _rotated(trace: Trace, rows: "list[TraceRow] | tuple[TraceRow, ...]", turn: float) -> list[TraceRow]:
    span = trace.duration_s
    if span == 0:
        return list(rows)
    return [replace(row, arrival_s=(row.arrival_s + turn * span) % span) for row in rows]


def to_rate(trace: Trace, rate_rps: float, seed: int, *, by_time: bool = False) -> Trace:
    """Scales the mean rate to `rate_rps`, by time compression with `by_time`, otherwise by thinning and superposition.
    Raises ValueError if all requests arrive at the same instant."""
    if trace.duration_s == 0:
        raise ValueError(f"all requests of {trace.name} arrive at once, so their rate cannot be set: leave out --rate")
    factor = rate_rps * trace.duration_s / len(trace.rows)
    return compress(trace, factor) if by_time else multiply(trace, factor, seed)
