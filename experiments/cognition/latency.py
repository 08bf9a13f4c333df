"""Measures perception and prediction together on one core, one request at a time and in batches, on prompts of the
corpus."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import TypeVar

import numpy as np

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import PromptView
from hmas.perception.backends.model import ModelBackend
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas_lab.perception.training.corpus import prompt_files, read_prompts

PROMPTS, WARM_UP, BATCH = 1000, 50, 32
ROUNDS = 3  # the fastest round counts, because only other processes make a round slower
_FALLBACK = ("Summarize this text in one sentence. ", "Write a function that reverses a list. ", "Who wrote Hamlet? ")

BATCH_SIZES = (1, 2, 4, 8, 16, 32)
TIMED_ROWS = 256  # prompts that the batches of one size hold together

Batch = TypeVar("Batch")


def prompts(data: Path, seed: int = 0) -> list[PromptView]:
    """Returns up to `PROMPTS` prompts drawn from `data/prompts`, or made of a few sentences if that folder is
    missing."""
    rng = random.Random(seed)
    try:
        found = read_prompts(prompt_files(data))
    except FileNotFoundError:
        texts = [rng.choice(_FALLBACK) * rng.randint(1, 40) for _ in range(PROMPTS)]
        return [
            PromptView(text=text, prompt_tokens=len(text) // 4, model="", tenant="", max_tokens=None) for text in texts
        ]
    return [
        PromptView(text=p.text, prompt_tokens=p.tokens, model="", tenant="", max_tokens=None)
        for p in rng.sample(found, min(PROMPTS, len(found)))
    ]


def measure(views: list[PromptView]) -> dict[str, float]:
    """Returns the time per request in ms (mean, p50, p80, p98), the requests per second in batches (`rate`), and the
    shares of the time, 0 to 1, that perception takes, and of it the tokenizer; prediction takes the rest."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        perception, prediction = ModelBackend(), CatBoostCostModel()
        _one_by_one(perception, prediction, views[:WARM_UP])
        parts = min((_one_by_one(perception, prediction, views) for _ in range(ROUNDS)), key=lambda t: float(t.mean()))
        times = parts.sum(axis=1)
        start = perf_counter()
        for view in views:
            perception.tokenize(view.text)
        tokenizer = perf_counter() - start
        batched = min(_batched(perception, prediction, views) for _ in range(ROUNDS))
    finally:
        os.sched_setaffinity(0, allowed)
    p50, p80, p98 = (float(q) for q in np.quantile(times, (0.5, 0.8, 0.98)))
    return {
        "mean_ms": float(times.mean()),
        "p50_ms": p50,
        "p80_ms": p80,
        "p98_ms": p98,
        "rate": len(views) / batched,
        "perception_share": float(parts[:, 0].sum() / times.sum()),
        "tokenizer_share": tokenizer * 1e3 / float(times.sum()),
    }


def batch_times(views: list[PromptView]) -> dict[str, list[tuple[int, float]]]:
    """Returns for `perception` and `prediction` the CPU time in ms of a batch of each of `BATCH_SIZES` on one core,
    which other processes hardly change: the mean over different batches, of each the fastest of `ROUNDS`."""
    perception, prediction = ModelBackend(), CatBoostCostModel()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        perception.estimate(views[:WARM_UP])
        found: dict[str, list[tuple[int, float]]] = {"perception": [], "prediction": []}
        for size in BATCH_SIZES:
            batches = [views[at : at + size] for at in range(0, min(len(views) - size, TIMED_ROWS) + 1, size)]
            queries = [[_query(view, 100.0) for view in batch] for batch in batches]
            found["perception"].append((size, _fastest_ms(perception.estimate, batches)))
            found["prediction"].append((size, _fastest_ms(prediction.predict, queries)))
    finally:
        os.sched_setaffinity(0, allowed)
    return found


def _fastest_ms(model: Callable[[list[Batch]], object], batches: list[list[Batch]]) -> float:
    times = np.empty((ROUNDS, len(batches)))
    for row in times:
        for place, batch in enumerate(batches):
            start = process_time()
            model(batch)
            row[place] = (process_time() - start) * 1e3
    return round(float(times.min(axis=0).mean()), 4)


def _one_by_one(perception: ModelBackend, prediction: CatBoostCostModel, views: list[PromptView]) -> np.ndarray:
    """Returns [n, 2] times in ms: of perception, of prediction."""
    times = np.empty((len(views), 2))
    for place, view in enumerate(views):
        start = perf_counter()
        estimate = perception.estimate([view])[0]
        perceived = perf_counter()
        prediction.predict([_query(view, estimate.output_tokens if estimate else 100.0)])
        times[place] = (perceived - start) * 1e3, (perf_counter() - perceived) * 1e3
    return times


def _batched(perception: ModelBackend, prediction: CatBoostCostModel, views: list[PromptView]) -> float:
    start = perf_counter()
    for at in range(0, len(views), BATCH):
        some = views[at : at + BATCH]
        estimates = perception.estimate(some)
        prediction.predict([_query(v, e.output_tokens if e else 100.0) for v, e in zip(some, estimates, strict=True)])
    return perf_counter() - start


def _query(view: PromptView, output_tokens: float) -> CostQuery:
    return CostQuery(
        prompt_tokens=view.prompt_tokens,
        output_tokens=output_tokens,
        model="llama-13b",
        hardware="A100x1",
        running=8,
        waiting=2,
        kv_usage=0.4,
        task=TaskType.UNKNOWN,
    )
