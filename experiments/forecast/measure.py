"""Scores what is forecast of jobs on recorded workflows: those of a fold of tasks by the others, or those apart."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.forecast.stages import RecordedStage
from hmas.laws.job_profiles import DoneStage, JobProfiles

FOLDS = 5
QUANTILES = (0.5, 0.9)
PROMPT_S, OUTPUT_S = 7.0e-5, 0.015 / 16 + 2.0e-4  # engine seconds of a token on `tiny-emulated` with 16 sequences
BY_TASK, APART = "by task", "kept apart"
MEDIANS, GATEWAY = "Eq. 8's medians", "gateway"
Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of one way to forecast. `split`: how what is scored was left out."""

    split: str
    system: str
    corpus: str
    metric: str
    value: float
    count: int


def table(
    jobs: Sequence[Sequence[RecordedStage]], scored: Callable[[RecordedStage], bool]
) -> list[tuple[RecordedStage, Array]]:
    """Returns each scored stage with the median and the 90 % quantile, in engine seconds, of what is left after it by
    the records that the gateway keeps of the other jobs."""
    profiles = JobProfiles()
    for job in jobs:
        if not scored(job[0]):
            profiles.learn(job[0].agent, [DoneStage(s.agent, s.prompt_tokens, s.output_tokens, 0.0) for s in job])
    return [(s, _quantiles(profiles, job[0].agent, s)) for job in jobs for s in job if scored(s)]


def _quantiles(profiles: JobProfiles, template: int, stage: RecordedStage) -> Array:
    known = profiles.records(template, stage.agent, stage.index)
    if not known:
        return np.zeros(len(QUANTILES))
    left = [PROMPT_S * need.prompt_tokens + OUTPUT_S * need.output_tokens for need in known]
    found: Array = np.quantile(left, QUANTILES, method="inverted_cdf")
    return found


def pinball(actual: Array, forecast: Array, quantile: float) -> float:
    over = actual - forecast
    return float(np.maximum(quantile * over, (quantile - 1.0) * over).mean())


def measure(
    jobs: Sequence[Sequence[RecordedStage]], apart: Sequence[Sequence[RecordedStage]], say: Callable[[str], None]
) -> list[Figure]:
    """Returns all figures. `apart`: workflows of which nothing is learnt; with them they alone are scored."""
    if apart:
        kept = {id(stage) for job in apart for stage in job}
        return _figures(APART, table([*jobs, *apart], lambda stage: id(stage) in kept))
    tasks = np.random.RandomState(0).permutation(sorted({job[0].task for job in jobs}))
    fold = {str(task): place % FOLDS for place, task in enumerate(tasks)}
    found: list[tuple[RecordedStage, Array]] = []
    for number in range(FOLDS):
        found += table(jobs, lambda stage, own=number: fold[stage.task] == own)  # type: ignore[misc]
        say(f"{BY_TASK}: {number + 1} of {FOLDS}")
    return _figures(BY_TASK, found)


def _figures(split: str, found: Sequence[tuple[RecordedStage, Array]]) -> list[Figure]:
    stages = [stage for stage, _ in found]
    actual = np.array([PROMPT_S * s.left[0] + OUTPUT_S * s.left[1] for s in stages])
    told, names = np.array([quantiles for _, quantiles in found]), np.array([stage.corpus for stage in stages])
    figures = []
    for corpus in ("all", *dict.fromkeys(names.tolist())):
        rows = np.full(len(stages), True) if corpus == "all" else names == corpus
        base = Figure(split=split, system="", corpus=corpus, metric="", value=0.0, count=int(rows.sum()))
        for system, values in ((MEDIANS, told[:, [0, 0]]), (GATEWAY, told)):
            losses = [pinball(actual[rows], values[rows, i], q) for i, q in enumerate(QUANTILES)]
            measured = {f"pinball {q:g}": loss for q, loss in zip(QUANTILES, losses, strict=True)}
            measured["pinball"] = sum(losses) / len(losses)
            measured["covered"] = float((actual[rows] <= values[rows, 1] + 1e-12).mean())
            figures += [replace(base, system=system, metric=name, value=value) for name, value in measured.items()]
    return figures
