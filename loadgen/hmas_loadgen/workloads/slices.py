"""Makes the scale-dominated slices of H-MAS §4.2 (Burst, Drift, Shift), the stress test and the semantic drift of App.
D.2.

The paper describes the slices in words only; the numbers in the constants below are our choice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas_loadgen.slo import TASKS
from hmas_loadgen.traces.row import Trace, TraceRow
from hmas_loadgen.workloads.arrivals import STRESS_DURATION_S, inhomogeneous, poisson, stress_test
from hmas_loadgen.workloads.lengths import Tokens, azure_like_inputs, azure_like_outputs, task_lengths

SHORT_TASKS = (TaskType.QA, TaskType.DIALOGUE, TaskType.TRANSLATION, TaskType.EXTRACTION)
LONG_TASKS = (
    TaskType.ESSAY_GENERATION,
    TaskType.LONG_FORM_GENERATION,
    TaskType.LETTER_DRAFTING,
    TaskType.RESEARCH_AND_COMMUNICATION,
)
BURST_EVERY_S = 30.0
BURST_LASTS_S = 4.0
BURST_FACTOR = 4.0
DRIFT_TOKENS = (0.6, 1.4)  # lengths at the start and at the end, relative to those that do not drift
SHIFT_RATES = (0.7, 1.4, 0.9)  # intensity of each third; mean 1
SHIFT_LONG = (0.2, 0.5, 0.8)  # share of long-generation tasks in each third
REGIME_S = 200.0


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, 0x736C69])


def _trace(
    name: str,
    note: str,
    span_s: float,
    arrivals: NDArray[np.float64],
    tasks: Sequence[TaskType],
    lengths: tuple[Tokens, Tokens],
) -> Trace:
    inputs, outputs = lengths
    columns = zip(arrivals.tolist(), inputs.tolist(), outputs.tolist(), tasks, strict=True)
    return Trace(
        name=name,
        rows=tuple(TraceRow(arrival_s=t, input_tokens=i, output_tokens=o, task=task) for t, i, o, task in columns),
        note=note,
        span_s=span_s,
    )


def _mixed_tasks(long_share: NDArray[np.float64], rng: np.random.Generator) -> list[TaskType]:
    """Draws a task type per request: one of `LONG_TASKS` with the given probability, otherwise one of the rest."""
    other = tuple(task for task in TASKS if task not in LONG_TASKS)
    long = rng.random(long_share.size) < long_share
    picks = rng.random(long_share.size)
    return [
        (LONG_TASKS if is_long else other)[int(p * len(LONG_TASKS if is_long else other))]
        for is_long, p in zip(long.tolist(), picks.tolist(), strict=True)
    ]


def _template_lengths(arrivals: NDArray[np.float64], rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """Draws Azure-like lengths whose distribution does not change over time."""
    return azure_like_inputs(np.zeros(arrivals.size), rng), azure_like_outputs(arrivals.size, rng)


def burst_slice(rate_rps: float, duration_s: float, seed: int) -> Trace:
    """Makes the slice that varies fast: bursts of 4 s every 30 s at four times the mean rate, with the long-run mean
    kept at `rate_rps`."""
    rng = _generator(seed)
    share = BURST_LASTS_S / BURST_EVERY_S
    calm = (1 - share * BURST_FACTOR) / (1 - share)
    arrivals = inhomogeneous(
        lambda t: rate_rps * np.where(t % BURST_EVERY_S < BURST_LASTS_S, BURST_FACTOR, calm),
        rate_rps * BURST_FACTOR,
        duration_s,
        rng,
    )
    tasks = _mixed_tasks(np.full(arrivals.size, 0.3), rng)
    note = f"H-MAS §4.2 Burst at {rate_rps:g} requests/s, seed {seed}"
    return _trace("burst", note, duration_s, arrivals, tasks, _template_lengths(arrivals, rng))


def drift_slice(rate_rps: float, duration_s: float, seed: int) -> Trace:
    """Makes the slice that varies at medium pace: arrivals are steady while lengths and the share of long tasks
    rise."""
    rng = _generator(seed)
    arrivals = poisson(rate_rps, duration_s, rng)
    progress = arrivals / duration_s
    tasks = _mixed_tasks(0.1 + 0.5 * progress, rng)
    factor = DRIFT_TOKENS[0] + (DRIFT_TOKENS[1] - DRIFT_TOKENS[0]) * progress
    inputs, outputs = _template_lengths(arrivals, rng)
    lengths = tuple(np.maximum(1, np.rint(tokens * factor)).astype(np.int64) for tokens in (inputs, outputs))
    note = f"H-MAS §4.2 Drift at {rate_rps:g} requests/s, seed {seed}"
    return _trace("drift", note, duration_s, arrivals, tasks, (lengths[0], lengths[1]))


def shift_slice(rate_rps: float, duration_s: float, seed: int) -> Trace:
    """Makes the slice that varies slowly: three equal parts that differ in rate and in the mix of task types, and so in
    lengths."""
    rng = _generator(seed)

    def third(t: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.minimum(2, (3 * t / duration_s).astype(np.int64))

    rates = rate_rps * np.array(SHIFT_RATES)
    arrivals = inhomogeneous(lambda t: rates[third(t)], float(rates.max()), duration_s, rng)
    tasks = _mixed_tasks(np.array(SHIFT_LONG)[third(arrivals)], rng)
    note = f"H-MAS §4.2 Shift at {rate_rps:g} requests/s, seed {seed}"
    return _trace("shift", note, duration_s, arrivals, tasks, task_lengths(tasks, rng))


def stress_slice(base_rps: float, seed: int) -> Trace:
    """Makes the 600 s stress test of H-MAS Eq. 13, with Azure-like lengths whose distribution does not change."""
    rng = _generator(seed)
    arrivals = stress_test(base_rps, rng)
    tasks = _mixed_tasks(np.full(arrivals.size, 0.3), rng)
    note = f"H-MAS Eq. 13 with base rate {base_rps:g} requests/s, seed {seed}"
    return _trace("stress", note, STRESS_DURATION_S, arrivals, tasks, _template_lengths(arrivals, rng))


REGIMES: Mapping[str, tuple[TaskType, ...]] = {"interactive": SHORT_TASKS, "long": LONG_TASKS, "mixed": TASKS}


def semantic_drift(arrivals: Trace, seed: int) -> Trace:
    """Replaces task types and lengths of a trace by those of three regimes that alternate every 200 s (H-MAS App. D.2);
    the arrivals stay."""
    rng = _generator(seed)
    regimes = tuple(REGIMES.values())
    tasks: list[TaskType] = []
    for row, pick in zip(arrivals.rows, rng.random(len(arrivals.rows)).tolist(), strict=True):
        regime = regimes[int(row.arrival_s // REGIME_S) % len(regimes)]
        tasks.append(regime[int(pick * len(regime))])
    inputs, outputs = task_lengths(tasks, rng)
    columns = zip(arrivals.rows, tasks, inputs.tolist(), outputs.tolist(), strict=True)
    rows = (replace(r, task=task, input_tokens=i, output_tokens=o, hash_ids=()) for r, task, i, o in columns)
    return arrivals.derived(rows, f"task regimes of H-MAS App. D.2 every {REGIME_S:g} s, seed {seed}")
