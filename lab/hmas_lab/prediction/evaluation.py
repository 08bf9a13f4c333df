"""Measures the quality of the cost model: R2 on rows held apart and on models and accelerators that training never saw,
and how fast an engine's own measurements correct it."""

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.cognition import AnswerCall, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, TaskType
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.prediction.agent import PredictionAgent, PredictionConfig
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.prediction.models.roofline import NAMES
from hmas_lab.prediction.training.measurements import LLM_PILOT, Measurements
from hmas_lab.prediction.training.train import ForestRecipe, fit, some_of_each_run

Floats = NDArray[np.float64]
By = Literal["model", "card"]
# What was looked at when the terms, the trees' inputs and their depth were chosen: these models, and this accelerator.
CHOSEN_BY: dict[By, tuple[str, ...]] = {
    "model": (
        "starcoder",
        "flan-t5-xl",
        "flan-t5-xxl",
        "llama-7b",
        "flan-ul2",
        "bloom-176b",
        "minimax-m2",
        "deepseek-r1",
    ),
    "card": ("h100",),
}
# Of these depths of the trees one is chosen for each time, on groups of the rows that are not left out (`INNER` folds);
# 0 is the physical term without trees.
DEPTHS, INNER = (0, 2, 6), 3
INNER_ROWS, INNER_TREES = 10, 100  # of each run, and of an inner fit
FEW_ROWS, FEW_TREES = 50, 300  # of each run, and of a fit without a group: a tenth of the work
SETTLED = (0, 10, 25, 50, 100, 200, 400, 800)  # requests that settled at a worker before those that are judged
WINDOW = 100  # requests that are judged from each of `SETTLED` on
_LEAST_S = 1e-6
LONGEST = 1200  # requests of a run that are replayed
MOST_WORKERS = 40  # drawn at random


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """The R2 of the predicted times on `rows` rows: of the prefill, of the time from first to last token (`decode`), of
    the time per token, where every row (`tpot`) or every token (`tpot_weighted`) counts alike, and of the whole
    latency. NaN where the rows do not tell the time."""

    rows: int
    prefill: float
    decode: float
    tpot: float
    tpot_weighted: float
    latency: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The median |log(predicted / observed)| of prefill time and time per token over `WINDOW` requests of each of
    `workers` workers, once as many requests as `settled` says have settled there; without correction; and with the one
    factor that is best for the worker's whole run (`constant`), which nobody knows in time."""

    workers: int
    settled: tuple[int, ...]
    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    uncorrected_prefill: float
    uncorrected_decode: float
    constant_prefill: tuple[float, ...]
    constant_decode: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """How a model predicts groups of rows, each by a fit that saw nothing of the group: the figures over all rows
    (`pooled`), over those of LLM-Pilot, over the groups by which nothing was chosen (`untouched`), and of each group,
    all with the trees' depth chosen on inner folds (`depths` of the prefill time and the time per token, by group);
    then the same for the depth that ships (`shipped`) and for the physical term alone, and how measurements correct
    what ships and that term (`corrected`, in the order of time; `mixed`, where the loads of a configuration come in
    random order)."""

    pooled: CostFigures
    pilot: CostFigures
    untouched: CostFigures
    groups: dict[str, CostFigures]
    depths: dict[str, tuple[int, int]]
    shipped: CostFigures
    physical: CostFigures
    corrected: Curve
    physical_corrected: Curve
    mixed: Curve
    physical_mixed: Curve


def evaluate(model: CatBoostCostModel, rows: Measurements) -> CostFigures:
    """Returns the figures of a trained model on the rows. As in service, the physical term alone answers where the
    accelerator is unknown."""
    predicted = model.predict_rows(rows.inputs)
    unknown = rows.card == ""
    predicted[unknown] = model.roofline.seconds(rows.inputs[unknown])
    return cost_figures(predicted, rows)


def cost_figures(predicted: Floats, rows: Measurements) -> CostFigures:
    """Returns the figures of predictions. `predicted` [n, 2] holds the prefill time and the time per token of each row,
    in s."""
    first, known = np.isfinite(rows.prefill_s), np.isfinite(rows.tpot_s)
    gaps, tpot, truth = rows.gaps[known], predicted[known, 1], rows.tpot_s[known]
    return CostFigures(
        rows=len(rows),
        prefill=r2(rows.prefill_s[first], predicted[first, 0]),
        decode=r2(truth * gaps, tpot * gaps),
        tpot=r2(truth, tpot),
        tpot_weighted=r2(truth, tpot, gaps),
        latency=r2(rows.latency_s, predicted[:, 0] + predicted[:, 1] * rows.gaps),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Times in s [n, 2] of rows, each predicted by a fit that saw nothing of the row's group: by the shipped recipe, by
    its physical term, and by trees of the depths (of prefill time and time per token, by group) that were best on inner
    folds (`nested`)."""

    shipped: Floats
    physical: Floats
    nested: Floats
    depths: dict[str, tuple[int, int]]


def left_out(
    rows: Measurements, by: By, recipe: ForestRecipe, report: Callable[[str], None], threads: int = 1
) -> Predicted:
    """Predicts the rows of each model, or of each accelerator, by fits to the rows of all others. Raises ValueError if
    there are fewer than three."""
    names = getattr(rows, by)
    if len(set(names)) < 3:
        raise ValueError(f"with {len(set(names))} groups by {by} there are no inner folds: measure three at least")
    few = replace(recipe, per_run=FEW_ROWS, trees=FEW_TREES)
    shipped, physical, nested = (np.empty((len(rows), 2)) for _ in range(3))
    depths: dict[str, tuple[int, int]] = {}
    for name in sorted(set(names)):
        out = names == name
        rest, held = rows.rows(~out), rows.rows(out)
        found = _by_depth(rest, held, few, {*DEPTHS, recipe.depth}, threads)
        shipped[out], physical[out] = found[recipe.depth], found[0]
        depths[name] = _best_depths(rest.rows(some_of_each_run(rest, few)), by, few, threads)
        nested[out] = np.stack([found[depth][:, time] for time, depth in enumerate(depths[name])], axis=1)
        decode = cost_figures(nested[out], held).decode
        report(f"without {name}: decode R2 {decode:.3f}, by trees of depth {depths[name]}")
    return Predicted(shipped=shipped, physical=physical, nested=nested, depths=depths)


def _by_depth(
    rows: Measurements, held: Measurements, recipe: ForestRecipe, depths: Collection[int], threads: int
) -> dict[int, Floats]:
    """Returns the predicted times of the rows `held`, by the depth of the trees, of fits to `rows`; those of the
    physical term, by 0, as well."""
    fits = {depth: fit(rows, replace(recipe, depth=depth), threads) for depth in depths if depth}
    found = {depth: fitted.predict(held.inputs) for depth, fitted in fits.items()}
    return found | {0: fits[max(fits)].roofline.seconds(held.inputs)}


def _best_depths(rows: Measurements, by: By, recipe: ForestRecipe, threads: int) -> tuple[int, int]:
    """Returns the depths of `DEPTHS` whose R2 of the prefill time, and of the time per token weighted by tokens, is
    best over the rows, each predicted by a fit to the groups of the other folds."""
    names, quick = getattr(rows, by), replace(recipe, per_run=INNER_ROWS, trees=INNER_TREES)
    fold = {name: place % INNER for place, name in enumerate(np.random.default_rng(0).permutation(sorted(set(names))))}
    at = np.array([fold[name] for name in names])
    found = {depth: np.empty((len(rows), 2)) for depth in DEPTHS}
    for number in range(INNER):
        own = at == number
        for depth, times in _by_depth(rows.rows(~own), rows.rows(own), quick, DEPTHS, threads).items():
            found[depth][own] = times
    figures = {depth: cost_figures(times, rows) for depth, times in found.items()}
    return (
        max(DEPTHS, key=lambda depth: figures[depth].prefill),
        max(DEPTHS, key=lambda depth: figures[depth].tpot_weighted),
    )


def left_out_figures(rows: Measurements, by: By, found: Predicted) -> LeftOut:
    """Returns the figures of what `left_out` returned."""
    names, pilot = getattr(rows, by), rows.source == LLM_PILOT
    untouched = ~np.isin(names, CHOSEN_BY[by])
    predicted, shipped, physical = found.nested, found.shipped, found.physical
    mixed, order = _mixed(rows)
    return LeftOut(
        pooled=cost_figures(predicted, rows),
        pilot=cost_figures(predicted[pilot], rows.rows(pilot)),
        untouched=cost_figures(predicted[untouched], rows.rows(untouched)),
        groups={name: cost_figures(predicted[names == name], rows.rows(names == name)) for name in sorted(set(names))},
        depths=found.depths,
        shipped=cost_figures(shipped, rows),
        physical=cost_figures(physical, rows),
        corrected=corrected(shipped, rows),
        physical_corrected=corrected(physical, rows),
        mixed=corrected(shipped[order], mixed),
        physical_mixed=corrected(physical[order], mixed),
    )


def _mixed(rows: Measurements) -> tuple[Measurements, NDArray[np.int64]]:
    """Returns the requests of each LLM-Pilot configuration as one run in random order, each of which settles before the
    next arrives, and the rows that they are."""
    pilot = np.flatnonzero(rows.source == LLM_PILOT)
    order = np.random.default_rng(0).permutation(pilot)
    some = rows.rows(order)
    run = np.unique(some.configuration.astype(str), return_inverse=True)[1]
    every_s = float(some.latency_s.max()) + 1.0
    return replace(some, run=run, arrival_s=np.arange(float(len(order))) * every_s), order


def corrected(predicted: Floats, rows: Measurements) -> Curve:
    """Returns how prediction's agent corrects predictions [n, 2] of the rows. Every run is a worker of its own, whose
    requests arrive and settle at the times that were measured. Of the runs that are long enough for all of `SETTLED`,
    `MOST_WORKERS` count, so that every point is about the same workers."""
    errors: list[Floats] = []
    plain: list[Floats] = []
    constant: list[Floats] = []
    numbers, sizes = np.unique(rows.run[rows.run >= 0], return_counts=True)
    long = np.random.default_rng(0).permutation(numbers[sizes >= SETTLED[-1] + WINDOW])
    for number in long[:MOST_WORKERS]:
        own = np.flatnonzero(rows.run == number)
        own = own[np.argsort(rows.arrival_s[own], kind="stable")][:LONGEST]
        run = rows.rows(own)
        said, settled = _replayed(run, predicted[own])
        judged = [np.flatnonzero(settled >= count)[:WINDOW] for count in SETTLED]
        if len(judged[-1]) < WINDOW:
            continue
        measured = np.stack([run.prefill_s, run.tpot_s], axis=1)
        logs = np.log(np.maximum(measured, _LEAST_S) / predicted[own])
        for errors_of, all_errors in (
            (errors, np.abs(np.log(np.maximum(measured, _LEAST_S) / said))),
            (plain, np.abs(logs)),
            (constant, np.abs(logs - np.nanmedian(logs, axis=0))),
        ):
            errors_of.append(np.stack([all_errors[place] for place in judged]))
    if not errors:
        raise ValueError(f"no run has {SETTLED[-1] + WINDOW} requests: nothing tells how measurements correct")
    medians, best = (np.nanmedian(np.array(some), axis=(0, 2)) for some in (errors, constant))
    uncorrected = np.nanmedian(np.array(plain), axis=(0, 1, 2))
    return Curve(
        workers=len(errors),
        settled=SETTLED,
        prefill=tuple(medians[:, 0].tolist()),
        decode=tuple(medians[:, 1].tolist()),
        uncorrected_prefill=float(uncorrected[0]),
        uncorrected_decode=float(uncorrected[1]),
        constant_prefill=tuple(best[:, 0].tolist()),
        constant_decode=tuple(best[:, 1].tolist()),
    )


def _replayed(run: Measurements, predicted: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Replays one run through prediction's agent, from a model that predicts the given costs. Returns what the agent
    answered [n, 2] and how many requests had settled before each."""
    agent = PredictionAgent(PredictionConfig(), LinearCostModel(()))
    said, settled = np.empty_like(predicted), np.zeros(len(run), np.int64)
    count = 0
    for now_s, place, ended in _in_time(run):
        if ended:
            agent.step(now_s, WorkerReported(_telemetry(run, place)))
            count += 1
            continue
        (batch,) = agent.step(now_s, CallReceived(place, (_item(run, place),), 1.0))
        assert isinstance(batch, RunBatch)
        (answer,) = agent.step(now_s, BatchReturned(batch.batch, (Cost(*predicted[place].tolist()),)))
        assert isinstance(answer, AnswerCall)
        said[place] = answer.answers[0].ttft_s, answer.answers[0].tpot_s
        settled[place] = count
    return said, settled


def _in_time(run: Measurements) -> Iterator[tuple[float, int, bool]]:
    """Yields (time, row, whether it is the end) of all arrivals and ends, in time; ends come first."""
    arrivals = ((at, 1, place) for place, at in enumerate(run.arrival_s.tolist()))
    ends = ((at, 0, place) for place, at in enumerate((run.arrival_s + run.latency_s).tolist()))
    for at, arrives, place in heapq.merge(sorted(arrivals), sorted(ends)):
        yield at, place, not arrives


def _item(run: Measurements, place: int) -> PredictItem:
    prompt_tokens, running = (int(run.inputs[place, NAMES.index(name)]) for name in ("prompt_tokens", "running"))
    query = CostQuery(
        prompt_tokens=prompt_tokens, output_tokens=float(run.output_tokens[place]), model="", hardware="",
        running=running, waiting=0, kv_usage=0.0, task=TaskType.UNKNOWN,
    )  # fmt: skip
    return PredictItem(str(place), "worker", query)


def _telemetry(run: Measurements, place: int) -> WorkerTelemetry:
    finished = RequestFinished(
        request_id=str(place), tenant="", task=TaskType.UNKNOWN, engine="", outcome=Outcome.FINISHED, prompt_tokens=0,
        output_tokens=int(run.output_tokens[place]), predicted_output_tokens_p90=0.0, upper_output_tokens=0.0,
        predictor="", run_s=0.0,
        prefill_s=float(run.prefill_s[place]), tpot_s=float(np.nan_to_num(run.tpot_s[place])), tpot_slo_s=0.0,
        censored=False, age_s=0.0,
    )  # fmt: skip
    return WorkerTelemetry(
        worker="worker", pool="", queued_count=0, queued_tokens=0, topology="", bypass=False, control_expired=False,
        engines=(), queued=(), dispatched=(), first_tokens=(), finished=(finished,),
    )  # fmt: skip


def r2(truth: Floats, guess: Floats, weight: Floats | None = None) -> float:
    """Returns the coefficient of determination R2 of the guesses, NaN if there are none; `weight` weighs the rows, all
    alike if it is None."""
    if not len(truth):
        return float("nan")
    weight = np.ones(len(truth)) if weight is None else weight
    mean = np.average(truth, weights=weight)
    return float(1 - np.average((truth - guess) ** 2, weights=weight) / np.average((truth - mean) ** 2, weights=weight))
