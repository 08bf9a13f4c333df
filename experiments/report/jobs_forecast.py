"""Writes the page about forecasts of jobs' stages, with the goals that were set and what came."""

from collections.abc import Sequence

from experiments.forecast.measure import APART, GATEWAY, MEDIANS, Figure, measure
from experiments.forecast.stages import read_stages
from experiments.pages.goal import Goal
from experiments.pages.template import percent
from experiments.study import Finished, Options, Study, written


def goals_of(figures: Sequence[Figure]) -> list[Goal]:
    """Returns the goals that the figures speak of."""
    at = {(f.system, f.metric): f.value for f in figures if f.corpus == "all"}
    saved = 1.0 - at[GATEWAY, "pinball"] / at[MEDIANS, "pinball"]
    covered = at[GATEWAY, "covered"]
    return [
        Goal("pinball loss of what is left ≥ 25 % below Eq. 8's medians", percent(saved), saved >= 0.25),
        Goal("the 90 % quantile covers 88 to 92 %", percent(covered), 0.88 <= covered <= 0.92),
    ]


def page_of(figures: Sequence[Figure], options: Options, found: Finished) -> dict[str, object]:
    verdicts = {True: "yes", False: "**no**"}
    metrics = list(dict.fromkeys(f.metric for f in figures))
    at = {(f.corpus, f.system, f.metric): f.value for f in figures}
    counts = {f.corpus: f"{f.corpus} ({f.count})" for f in figures}
    cells = [
        (counts[corpus], system, *(f"{at[corpus, system, metric]:.3f}" for metric in metrics))
        for corpus, system in dict.fromkeys((f.corpus, f.system) for f in figures)
    ]
    return {
        "goals": [(g.words, g.found, verdicts[bool(g.met)]) for g in goals_of(figures)],
        "head": ("corpus (stages)", "system", *metrics),
        "cells": cells,
        "apart": any(f.split == APART for f in figures),
    }


def rows_of(options: Options, found: Finished) -> list[Figure]:
    if options.pages_only:
        return written(Figure, options.out / "jobs-forecast.json")
    apart = read_stages(options.apart) if options.apart is not None else []
    return measure(read_stages(options.agentic()), apart, print)


STUDY: Study[None, Figure] = Study(
    name="jobs-forecast",
    about="Measures forecasts about stages of recorded workflows (Maestro's Table VI). It takes about "
    "a minute of one core and needs --data with agentic/.",
    takes=("out", "data", "apart", "pages_only"),
    rows=rows_of,
    values=page_of,
)
