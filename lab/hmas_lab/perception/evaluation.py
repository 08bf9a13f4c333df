"""Measures the quality of a perception backend on prompts that training did not see: of its task types, their
calibration, the SLOs and the output lengths.

Only answers of language models count, because a person's reference answer does not have the length of a model's.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from hmas.contracts.request import TaskType
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import PromptView
from hmas.perception.agent.rules import named, tag
from hmas.perception.backends.model import ModelBackend
from hmas_lab.perception.training.corpus import CorpusAnswer, Prompt
from hmas_lab.perception.training.decision_list import DecisionList
from hmas_lab.perception.training.examples import capped, source_groups

THIN_TYPES = (TaskType.LETTER_DRAFTING, TaskType.ESSAY_GENERATION, TaskType.TRANSLATION)
_BINS = 15
_THRESHOLDS = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """How well task types are predicted. `ece` is the expected calibration error; `rejected` is the share of prompts
    whose confidence is below the backend's threshold. `by_type` and `by_source` hold (prompts, accuracy), `rejection`
    holds (threshold, share rejected, accuracy of the rest).

    `ttft_mae_ms` and `tpot_mae_ms` are the mean absolute errors, in ms, of the default SLOs of the predicted types
    against those of the true types (H-MAS App. E.5), at the same importance.
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
    """How well output lengths are predicted, in tokens: `mae` of the median, `mape` relative to the true length,
    `kendall_tau` of the order, pinball losses of the 50 % and 90 % quantiles, and `coverage`, the share of answers
    within the 90 % quantile.

    Of the log error, log((1 + median) / (1 + true)): its standard deviation `log_sd`, and its means in each fifth of
    the predicted length (`log_by_predicted`) and each tenth of the true one (`log_by_true`), from short to long.
    `coverage_by_predicted` is the coverage in each fifth of predicted length.
    """

    answers: int
    mae: float
    mape: float
    kendall_tau: float
    pinball_50: float
    pinball_90: float
    coverage: float
    log_sd: float
    log_by_predicted: tuple[float, ...]
    log_by_true: tuple[float, ...]
    coverage_by_predicted: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """How well it is told whether an agent answers with a call of a tool: `accuracy` at one half, `common`, the
    accuracy of the more frequent answer, and `auc`, the area under the receiver operating characteristic. `by_source`
    holds (turns, accuracy)."""

    turns: int
    accuracy: float
    common: float
    auc: float
    by_source: dict[str, tuple[int, float]]


def evaluate_task(backend: ModelBackend, prompts: Sequence[Prompt], seed: int = 0) -> TaskFigures:
    """Measures on the prompts with a known type how well a backend tells task types, and the error of the SLOs that
    follow from them; `seed` draws the importances for these SLOs. Raises ValueError if no prompt has a type."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    if not typed:
        raise ValueError("no prompt of these files has a task type: give files with labelled prompts")
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
    """Measures the output lengths of a backend on every answer of a language model; `model_known` tells the backend
    which model answered. Raises ValueError if there are no such answers."""
    rows = answers_of(prompts)
    if not rows:
        raise ValueError(
            "no prompt of these files has an answer written by a language model: give files that hold such answers"
        )
    views = [view(prompt, answer.model if model_known else "") for prompt, answer in rows]
    tokens = backend.predict(views).tokens.astype(float)
    return length_figures(tokens[:, 0], tokens[:, 1], np.array([answer.tokens for _, answer in rows], float))


def length_rows(backend: ModelBackend, prompts: Sequence[Prompt]) -> list[tuple[str, int, float, float]]:
    """Returns for every answer of a language model: task type or `unknown`, tokens, and their predicted median and 90 %
    quantile, without telling the backend which model answered. A simulation draws from them to err as the backend
    does."""
    rows = answers_of(prompts)
    tokens = backend.predict([view(prompt) for prompt, _ in rows]).tokens
    return [
        (str(prompt.task or TaskType.UNKNOWN), answer.tokens, round(float(median), 1), round(float(upper), 1))
        for (prompt, answer), (median, upper) in zip(rows, tokens, strict=True)
    ]


def evaluate_tools(backend: ModelBackend, prompts: Sequence[Prompt]) -> ToolFigures:
    """Measures the probability of a tool call on prompts of which it is known. Raises ValueError if there are none of
    either kind."""
    known = [prompt for prompt in prompts if prompt.calls_tool is not None]
    truth = np.array([bool(prompt.calls_tool) for prompt in known])
    if not known or truth.all() or not truth.any():
        raise ValueError("tool calls need prompts that were answered by a call and prompts that were not: give both")
    said = backend.predict([view(prompt) for prompt in known]).tools.astype(float)
    right = (said >= 0.5) == truth
    calls = int(truth.sum())
    ranks = rankdata(said)[truth].sum() - calls * (calls + 1) / 2
    return ToolFigures(
        turns=len(known),
        accuracy=float(right.mean()),
        common=float(max(truth.mean(), 1 - truth.mean())),
        auc=float(ranks / (calls * (len(known) - calls))),
        by_source=shares([prompt.source for prompt in known], right),
    )


def length_figures(median: Floats, upper: Floats, truth: Floats) -> LengthFigures:
    off, inside = np.log1p(median) - np.log1p(truth), truth <= upper
    fifths, tenths = np.array_split(np.argsort(median, kind="stable"), 5), np.array_split(np.argsort(truth), 10)
    return LengthFigures(
        answers=len(truth),
        mae=float(np.abs(median - truth).mean()),
        mape=float((np.abs(median - truth) / truth).mean()),
        kendall_tau=float(kendalltau(median, truth).statistic),
        pinball_50=_pinball(median, truth, 0.5),
        pinball_90=_pinball(upper, truth, 0.9),
        coverage=float(inside.mean()),
        log_sd=float(off.std()),
        log_by_predicted=_means(off, fifths),
        log_by_true=_means(off, tenths),
        coverage_by_predicted=_means(inside.astype(float), fifths),
    )


def _means(values: Floats, parts: Sequence[NDArray[np.int64]]) -> tuple[float, ...]:
    return tuple(float(values[part].mean()) for part in parts if len(part))


def coverage_by_prompt(backend: ModelBackend, prompts: Sequence[Prompt]) -> float:
    """Returns the share of answers within the predicted 90 % quantile, where every prompt counts alike, because some
    have thirty answers and most have one."""
    asked = [prompt for prompt in prompts if prompt.answers]
    upper = backend.predict([view(prompt) for prompt in asked]).tokens[:, 1]
    shares_in = [
        float(np.mean([answer.tokens <= bound for answer in prompt.answers]))
        for prompt, bound in zip(asked, upper, strict=True)
    ]
    return float(np.mean(shares_in))


def linear_mae(training: Sequence[Prompt], test: Sequence[Prompt]) -> float:
    """Returns the mean absolute error, in tokens, of a straight line from the prompt's to the answer's tokens, fitted
    on `training` by least squares (Maestro Table VI, Linear)."""
    seen, held = answers_of(training), answers_of(test)
    slope, base = np.polyfit([p.tokens for p, _ in seen], [a.tokens for _, a in seen], 1)
    return float(np.mean([abs(base + slope * prompt.tokens - answer.tokens) for prompt, answer in held]))


def rules_by_source(prompts: Sequence[Prompt]) -> dict[str, tuple[int, float]]:
    """Returns (prompts, accuracy) of the rules backend by source, on every prompt with a type. The rules learn nothing,
    so training prompts need not be left out."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    right = np.array([tag(prompt.text)[0] is prompt.task for prompt in typed])
    return shares([prompt.source for prompt in typed], right)


def contested_by_source(prompts: Sequence[Prompt]) -> dict[str, float]:
    """Returns, by source, the share of prompts whose first paragraph names another task type than their label: a source
    gives all its prompts one label, whatever each of them asks for."""
    typed = [prompt for prompt in prompts if prompt.task is not None]
    other = np.array([named(prompt.text) not in (None, prompt.task) for prompt in typed])
    return {source: share for source, (_, share) in shares([prompt.source for prompt in typed], other).items()}


def learnt_rules_by_source(prompts: Sequence[Prompt], seed: int) -> dict[str, float]:
    """Returns, by source, the accuracy of keyword rules that were learnt without that source and its group."""
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
    """Returns the expected calibration error over bins of equal width (Guo et al. 2017)."""
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(float(right[inside].mean()) - float(confidence[inside].mean())) * float(inside.mean())
        for inside in (bins == number for number in range(_BINS))
        if inside.any()
    ]
    return sum(gaps)


def slo_errors(truth: Sequence[TaskType], guess: Sequence[TaskType], seed: int) -> tuple[float, float]:
    """Returns the mean absolute errors, in ms, of the TTFT and TPOT SLOs that follow from the guessed types, with
    importances drawn uniformly from [0.5, 1] (H-MAS App. E.5, Eq. 14)."""
    rng = random.Random(seed)
    ttft = tpot = 0.0
    for true, said in zip(truth, guess, strict=True):
        importance = rng.uniform(0.5, 1.0)
        want, got = default_slo(true, importance), default_slo(said, importance)
        ttft += abs(want.ttft_s - got.ttft_s) * 1e3
        tpot += abs(want.tpot_s - got.tpot_s) * 1e3
    return ttft / len(truth), tpot / len(truth)


def shares(keys: Sequence[str], right: NDArray[np.bool_]) -> dict[str, tuple[int, float]]:
    """Returns (count, share that is right) per key, in order of key; `keys` and `right` have an entry per prompt."""
    counts, hits = Counter(keys), Counter(key for key, hit in zip(keys, right, strict=True) if hit)
    return {key: (counts[key], hits[key] / counts[key]) for key in sorted(counts)}


def _rejection(confidence: Floats, right: NDArray[np.bool_], threshold: float) -> tuple[float, float, float]:
    kept = confidence >= threshold
    return threshold, 1.0 - float(kept.mean()), float(right[kept].mean()) if kept.any() else float("nan")


def _pinball(guess: Floats, truth: Floats, level: float) -> float:
    gap = truth - guess
    return float(np.maximum(level * gap, (level - 1) * gap).mean())
