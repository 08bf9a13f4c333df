"""What a perception backend is worth on held-apart prompts: task type, calibration, SLO fields, output length.

Answers are those of language models only: a person's reference answer has not the length a model would produce.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import PromptView
from hmas.perception.agent.rules import named, tag
from hmas.perception.backends.model import ModelBackend
from hmas.perception.training.corpus import CorpusAnswer, Prompt
from hmas.perception.training.decision_list import DecisionList
from hmas.perception.training.examples import capped, source_groups

THIN_TYPES = (TaskType.LETTER_DRAFTING, TaskType.ESSAY_GENERATION, TaskType.TRANSLATION)
_BINS = 15
_THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """`by_type`, `by_source`: (prompts, accuracy). `rejection`: (threshold, share rejected, accuracy of the rest).

    `ttft_mae_ms`, `tpot_mae_ms`: SLO fields against App. E.5's annotation, the importance known to both.
    """

    prompts: int
    accuracy: float
    ece: float
    rejected: float
    by_type: dict[str, tuple[int, float]]
    by_source: dict[str, tuple[int, float]]
    rejection: tuple[tuple[float, float, float], ...]
    ttft_mae_ms: float
    tpot_mae_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFigures:
    """Tokens. `coverage` is the share of answers within the 90 % quantile."""

    answers: int
    mae: float
    mape: float
    kendall_tau: float
    pinball_50: float
    pinball_90: float
    coverage: float


def evaluate_task(backend: ModelBackend, prompts: Sequence[Prompt], seed: int = 0) -> TaskFigures:
    """Over the prompts whose type is known. Raises ValueError if there is none."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    if not typed:
        raise ValueError("no prompt of these files has a task type")
    probabilities = backend.predict([view(prompt) for prompt in typed]).probabilities
    confidence = probabilities.max(axis=1).astype(float)
    guess = [backend.tasks[place] for place in probabilities.argmax(axis=1)]
    right = np.array([prompt.task is said for prompt, said in zip(typed, guess, strict=True)])
    ttft, tpot = slo_errors([prompt.task or TaskType.UNKNOWN for prompt in typed], guess, seed)
    return TaskFigures(
        prompts=len(typed),
        accuracy=float(right.mean()),
        ece=calibration_error(confidence, right),
        rejected=float((confidence < backend.least_confidence).mean()),
        by_type=shares([str(prompt.task) for prompt in typed], right),
        by_source=shares([prompt.source for prompt in typed], right),
        rejection=tuple(_rejection(confidence, right, threshold) for threshold in _THRESHOLDS),
        ttft_mae_ms=ttft,
        tpot_mae_ms=tpot,
    )


def evaluate_length(backend: ModelBackend, prompts: Sequence[Prompt], model_known: bool) -> LengthFigures:
    """Over every answer of a language model. Raises ValueError if there is none."""
    rows = answers_of(prompts)
    if not rows:
        raise ValueError("no prompt of these files has an answer written by a language model")
    views = [view(prompt, answer.model if model_known else "") for prompt, answer in rows]
    tokens = backend.predict(views).tokens.astype(float)
    return length_figures(tokens[:, 0], tokens[:, 1], np.array([answer.tokens for _, answer in rows], float))


def length_rows(backend: ModelBackend, prompts: Sequence[Prompt]) -> list[tuple[str, int, float, float]]:
    """Of every answer of a language model: task type or `unknown`, tokens, predicted median and 90 % quantile, the
    answering model not told. What a simulation resamples to err as the model does."""
    rows = answers_of(prompts)
    tokens = backend.predict([view(prompt) for prompt, _ in rows]).tokens
    return [
        (str(prompt.task or TaskType.UNKNOWN), answer.tokens, round(float(median), 1), round(float(upper), 1))
        for (prompt, answer), (median, upper) in zip(rows, tokens, strict=True)
    ]


def length_figures(median: Floats, upper: Floats, truth: Floats) -> LengthFigures:
    return LengthFigures(
        answers=len(truth),
        mae=float(np.abs(median - truth).mean()),
        mape=float((np.abs(median - truth) / truth).mean()),
        kendall_tau=float(kendalltau(median, truth).statistic),
        pinball_50=_pinball(median, truth, 0.5),
        pinball_90=_pinball(upper, truth, 0.9),
        coverage=float((truth <= upper).mean()),
    )


def coverage_by_prompt(backend: ModelBackend, prompts: Sequence[Prompt]) -> float:
    """Share of answers within the 90 % quantile, every prompt counted alike: some have thirty answers, most one."""
    asked = [prompt for prompt in prompts if prompt.answers]
    upper = backend.predict([view(prompt) for prompt in asked]).tokens[:, 1]
    shares_in = [
        float(np.mean([answer.tokens <= bound for answer in prompt.answers]))
        for prompt, bound in zip(asked, upper, strict=True)
    ]
    return float(np.mean(shares_in))


def linear_mae(training: Sequence[Prompt], test: Sequence[Prompt]) -> float:
    """Least squares of the answer's tokens on the prompt's (Maestro Table VI, Linear)."""
    seen, held = answers_of(training), answers_of(test)
    slope, base = np.polyfit([p.tokens for p, _ in seen], [a.tokens for _, a in seen], 1)
    return float(np.mean([abs(base + slope * prompt.tokens - answer.tokens) for prompt, answer in held]))


def rules_by_source(prompts: Sequence[Prompt]) -> dict[str, tuple[int, float]]:
    """The rules baseline on every typed prompt; it learns nothing, so no split applies to it."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    right = np.array([tag(prompt.text)[0] is prompt.task for prompt in typed])
    return shares([prompt.source for prompt in typed], right)


def contested_by_source(prompts: Sequence[Prompt]) -> dict[str, float]:
    """Share of the typed prompts whose first paragraph names another type than their label: a source gives one label
    to all its prompts, whatever each asks for."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    other = np.array([named(prompt.text) not in (None, prompt.task) for prompt in typed])
    return {source: share for source, (_, share) in shares([prompt.source for prompt in typed], other).items()}


def learnt_rules_by_source(prompts: Sequence[Prompt], seed: int) -> dict[str, float]:
    """Accuracy on each source of keyword rules learnt without it and its group."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    accuracy = {}
    for group in source_groups(typed):
        rest = capped([prompt for prompt in typed if prompt.source not in group], seed)
        rules = DecisionList([prompt.text for prompt in rest], [prompt.task or TaskType.UNKNOWN for prompt in rest])
        for source in sorted(group):
            own = [prompt for prompt in typed if prompt.source == source]
            accuracy[source] = sum(rules.tag(prompt.text) is prompt.task for prompt in own) / len(own)
    return accuracy


def answers_of(prompts: Sequence[Prompt]) -> list[tuple[Prompt, CorpusAnswer]]:
    return [(prompt, answer) for prompt in prompts for answer in prompt.answers]


def view(prompt: Prompt, model: str = "") -> PromptView:
    return PromptView(text=prompt.text, prompt_tokens=prompt.tokens, model=model, tenant="", max_tokens=None)


def calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    """Expected calibration error over equal-width bins (Guo et al. 2017)."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(float(right[inside].mean()) - float(confidence[inside].mean())) * float(inside.mean())
        for inside in (bins == number for number in range(_BINS))
        if inside.any()
    ]
    return sum(gaps)


def slo_errors(truth: Sequence[TaskType], guess: Sequence[TaskType], seed: int) -> tuple[float, float]:
    """Mean absolute error of TTFT and TPOT targets, ms, importance uniform in [0.5, 1] (H-MAS App. E.5, Eq. 14)."""
    rng = random.Random(seed)
    ttft = tpot = 0.0
    for true, said in zip(truth, guess, strict=True):
        importance = rng.uniform(0.5, 1.0)
        want, got = default_slo(true, importance), default_slo(said, importance)
        ttft += abs(want.ttft_s - got.ttft_s) * 1e3
        tpot += abs(want.tpot_s - got.tpot_s) * 1e3
    return ttft / len(truth), tpot / len(truth)


def shares(keys: Sequence[str], right: NDArray[np.bool_]) -> dict[str, tuple[int, float]]:
    """(count, share right) per key, in order of key."""
    counts, hits = Counter(keys), Counter(key for key, hit in zip(keys, right, strict=True) if hit)
    return {key: (counts[key], hits[key] / counts[key]) for key in sorted(counts)}


def _rejection(confidence: Floats, right: NDArray[np.bool_], threshold: float) -> tuple[float, float, float]:
    kept = confidence >= threshold
    return threshold, 1.0 - float(kept.mean()), float(right[kept].mean()) if kept.any() else float("nan")


def _pinball(guess: Floats, truth: Floats, level: float) -> float:
    gap = truth - guess
    return float(np.maximum(level * gap, (level - 1) * gap).mean())
