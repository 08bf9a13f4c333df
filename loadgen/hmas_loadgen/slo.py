"""Adds task types, importance, SLOs and tenants to the rows of a trace (H-MAS App. E.5: Table 6, Eq. 14 with
alpha = 0.2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas_loadgen.traces.row import Trace, TraceRow

TASKS: tuple[TaskType, ...] = tuple(task for task in TaskType if task is not TaskType.UNKNOWN)


@dataclass(frozen=True, slots=True)
class TaskLengths:
    """Median and 90 % quantile of the prompt (input) and answer (output) lengths of a task type, tokens. The lengths
    are taken as log-normally distributed."""

    input_p50: float
    input_p90: float
    output_p50: float
    output_p90: float

    @property
    def output_sigma(self) -> float:
        return _sigma(self.output_p50, self.output_p90)

    @property
    def input_sigma(self) -> float:
        return _sigma(self.input_p50, self.input_p90)


def _sigma(p50: float, p90: float) -> float:
    return math.log(p90 / p50) / 1.2816  # the standard normal's 90 % quantile


# Measured on labelled prompts with recorded responses: GSM8K, HumanEval, MBPP, SciTLDR, QMSum, WMT23, NQ-open,
# HelloBench, IFEval, schema-guided dialogue, CrossNER, WritingBench, LongBench-Write and DeepResearch Bench. QA
# (answers of a few words, and essays) and research (tool calls of 46 tokens, and reports of 6000) are compromises
# between unlike prompts.
TASK_LENGTHS: Mapping[TaskType, TaskLengths] = {
    TaskType.QA: TaskLengths(16, 367, 40, 300),
    TaskType.DIALOGUE: TaskLengths(84, 401, 37, 150),
    TaskType.TRANSLATION: TaskLengths(59, 137, 46, 210),
    TaskType.EXTRACTION: TaskLengths(73, 472, 34, 69),
    TaskType.PARAPHRASING: TaskLengths(57, 1436, 44, 899),
    TaskType.CODE_GENERATION: TaskLengths(27, 97, 70, 209),
    TaskType.INSTRUCTION_FOLLOWING: TaskLengths(41, 88, 118, 659),
    TaskType.SUMMARIZATION: TaskLengths(240, 4385, 27, 118),
    TaskType.LETTER_DRAFTING: TaskLengths(49, 51, 288, 394),
    TaskType.MATH_REASONING: TaskLengths(57, 97, 72, 146),
    TaskType.ESSAY_GENERATION: TaskLengths(38, 168, 647, 984),
    TaskType.LONG_FORM_GENERATION: TaskLengths(126, 2416, 1160, 1932),
    TaskType.RESEARCH_AND_COMMUNICATION: TaskLengths(27, 72, 700, 3000),
}


def task_odds(output_tokens: int, tasks: Sequence[TaskType] = TASKS) -> NDArray[np.float64]:
    """Returns the probability of each task type given an output length, if all types are equally common: its log-normal
    density at that length, plus a floor of 1 %. A row of 1000 tokens is thus more likely an essay than an
    extraction."""
    lengths = [TASK_LENGTHS[task] for task in tasks]
    sigma = np.array([max(0.3, item.output_sigma) for item in lengths])
    distance = (math.log(output_tokens) - np.log([item.output_p50 for item in lengths])) / sigma
    density = np.exp(-0.5 * distance**2) / sigma
    odds = density / density.sum() + 0.01
    shares: NDArray[np.float64] = odds / odds.sum()
    return shares


def assign_tasks(trace: Trace, seed: int) -> Trace:
    """Draws a task type that fits the output length for each row without one, because public traces give lengths
    only."""
    rng = np.random.default_rng([seed, 0x7461736B])
    by_length: dict[int, NDArray[np.float64]] = {}

    def pick(row: TraceRow) -> TraceRow:
        if row.task is not None:
            return row
        odds = by_length.get(row.output_tokens)
        if odds is None:
            odds = by_length[row.output_tokens] = task_odds(row.output_tokens).cumsum()
        return replace(row, task=TASKS[min(int(odds.searchsorted(rng.random())), len(TASKS) - 1)])

    return trace.derived(map(pick, trace.rows), f"task types by output length, seed {seed}")


def annotate(trace: Trace, seed: int) -> Trace:
    """Gives rows without them a task type, an importance drawn uniformly from [0.5, 1], and the SLO of H-MAS Eq. 14."""
    rng = np.random.default_rng([seed, 0x736C6F])
    importance = rng.uniform(0.5, 1.0, len(trace.rows))

    def mark(row: TraceRow, drawn: float) -> TraceRow:
        weight = row.importance if row.importance is not None else drawn
        slo = row.slo or default_slo(row.task or TaskType.UNKNOWN, weight)
        return replace(row, slo=slo, importance=weight)

    if any(row.task is None for row in trace.rows):
        trace = assign_tasks(trace, seed)
    rows = map(mark, trace.rows, importance.tolist())
    return trace.derived(rows, f"SLOs of H-MAS Table 6 and Eq. 14, seed {seed}")


def assign_tenants(trace: Trace, shares: Mapping[str, float], seed: int) -> Trace:
    """Assigns each row to a tenant, drawn in proportion to `shares`; the trace's own tenants are replaced. Raises
    ValueError if a share is not positive."""
    if not shares or min(shares.values()) <= 0:
        raise ValueError(f"the shares of tenants must be above 0, not {dict(shares)}")
    rng = np.random.default_rng([seed, 0x74656E])
    names = list(shares)
    weights = np.array([shares[name] for name in names])
    picks = rng.choice(len(names), len(trace.rows), p=weights / weights.sum())
    rows = (replace(row, tenant=names[int(pick)]) for row, pick in zip(trace.rows, picks, strict=True))
    return trace.derived(rows, f"tenants {', '.join(names)}, seed {seed}")
