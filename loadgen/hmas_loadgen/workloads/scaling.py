"""Changing the load of a trace: window, speed, rate. Each says in the trace's note what it did."""

from dataclasses import replace

import numpy as np

from hmas_loadgen.traces.row import Trace, TraceRow


def window(trace: Trace, start_s: float, duration_s: float | None = None) -> Trace:
    """The requests of [start_s, start_s + duration_s), moved to 0. Raises ValueError if there are none."""
    end_s = float("inf") if duration_s is None else start_s + duration_s
    rows = [replace(r, arrival_s=r.arrival_s - start_s) for r in trace.rows if start_s <= r.arrival_s < end_s]
    if not rows:
        raise ValueError(
            f"no request of {trace.name} arrives in [{start_s:g}, {end_s:g}) s; it spans {trace.duration_s:g} s"
        )
    span_s = min(end_s, max(trace.duration_s, rows[-1].arrival_s + start_s)) - start_s
    return trace.derived(rows, f"window from {start_s:g} s to {end_s:g} s", span_s)


def compress(trace: Trace, speed: float) -> Trace:
    """Time compression: the same requests `speed` times as fast. Bursts get shorter and steeper."""
    if speed <= 0:
        raise ValueError("speed must be positive")
    rows = (replace(row, arrival_s=row.arrival_s / speed) for row in trace.rows)
    return trace.derived(rows, f"time compressed {speed:g} times", trace.duration_s / speed)


def multiply(trace: Trace, factor: float, seed: int) -> Trace:
    """`factor` times the rate on the same clock. Below 1 each request stays with probability `factor` (thinning).
    Above, whole copies are laid over it, each rotated by a random shift so that bursts do not coincide, and the
    fractional one is thinned (superposition, which smooths bursts as many independent users would)."""
    if factor <= 0:
        raise ValueError("the rate factor must be positive")
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
    """Scales the mean rate to `rate_rps`, by time compression or else by thinning and superposition."""
    if trace.duration_s == 0:
        raise ValueError("all requests arrive at once; a rate cannot be set")
    factor = rate_rps * trace.duration_s / len(trace.rows)
    return compress(trace, factor) if by_time else multiply(trace, factor, seed)
