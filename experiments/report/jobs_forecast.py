"""Writes the page about forecasts of jobs' stages, with the goals that were set and what came."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.forecast.measure import APART, BY_TASK, PAPER, Figure
from experiments.report.goal import Goal
from experiments.report.template import percent, render
from hmas_loadgen.workflows.recorded import TAU_BENCH

GENERATED = "\n<!-- Written by `python -m experiments jobs-forecast`; do not edit. -->\n"
MEDIANS, TABLE, TREES, LIVE = "Eq. 8's medians", "table", "trees", "gateway"


def goals_of(figures: Sequence[Figure]) -> list[Goal]:
    """Returns the goals that the figures speak of."""
    at = {(f.forecast, f.split, f.system, f.corpus, f.metric): f.value for f in figures}
    whole = APART if any(f.split == APART for f in figures) else BY_TASK
    goals = []
    for system in (TREES, LIVE):
        saved = 1.0 - at["left", whole, system, "all", "pinball"] / at["left", whole, MEDIANS, "all", "pinball"]
        goals.append(
            Goal(
                f"pinball loss of what is left ≥ 25 % below Eq. 8's medians ({system}, {whole})",
                percent(saved),
                saved >= 0.25,
            )
        )
        if (own := at.get(("left", whole, TABLE, "all", "pinball"))) is not None:
            more = 1.0 - at["left", whole, system, "all", "pinball"] / own
            goals.append(
                Goal(f"the same against both quantiles of the table's records ({system})", percent(more), None)
            )
        covered = at["left", whole, system, "all", "covered"]
        words = f"its 90 % quantile covers 88 to 92 % ({system}, {whole})"
        goals.append(Goal(words, percent(covered), 0.88 <= covered <= 0.92))
    goals += [
        Goal(f"ECE of tool intent ≤ 0.03 ({split})", f"{error:.3f}", error <= 0.03)
        for split in (whole, PAPER)
        if (error := at.get(("tool", split, "ours", "all", "ECE"))) is not None
    ]
    for split, least in ((whole, 0.85), (PAPER, 0.92)):
        if (area := at.get(("tool", split, "ours", TAU_BENCH, "AUC"))) is not None:
            other = at["tool", split, "bag of words", TAU_BENCH, "AUC"]
            found = f"{area:.3f}; bag of words {other:.3f}"
            goals.append(Goal(f"AUC of tool intent on tau-bench ≥ {least} ({split})", found, area >= least))
    for split in (PAPER, whole):
        for rival, least in (("Magnus-like", 0.19), ("MLP on text vectors", 0.30)):
            if (error := at.get(("length", split, "ours", "all", "MAE"))) is not None:
                saved = 1.0 - error / at["length", split, rival, "all", "MAE"]
                met = saved >= least if split != BY_TASK else None
                words = f"MAE of lengths ≥ {percent(least)} below {rival} ({split})"
                goals.append(Goal(words, percent(saved), met))
    return goals


def write_page(figures: Sequence[Figure], out: Path) -> list[Path]:
    """Writes `jobs-forecast.md` and `jobs-forecast.json` into `out` and returns their paths."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts = out / "jobs-forecast.md", out / "jobs-forecast.json"
    goals = goals_of(figures)
    verdicts = {True: "yes", False: "**no**", None: "no goal"}
    tables = []
    for forecast, title in (("left", "What a job still needs"), ("tool", "Tool intent"), ("length", "Lengths")):
        for split in dict.fromkeys(f.split for f in figures if f.forecast == forecast):
            some = [f for f in figures if f.forecast == forecast and f.split == split]
            metrics = list(dict.fromkeys(f.metric for f in some))
            at = {(f.corpus, f.system, f.metric): f for f in some}
            counts = {f.corpus: f"{f.corpus} ({f.count})" for f in some}
            cells = [
                (
                    counts[corpus], system,
                    *(f"{at[corpus, system, m].value:.3f}" if (corpus, system, m) in at else "" for m in metrics),
                )
                for corpus, system in dict.fromkeys((f.corpus, f.system) for f in some)
            ]  # fmt: skip
            head = ("corpus (stages)", "system", *metrics)
            tables.append({"title": f"{title}, {split}", "head": head, "cells": cells})
    text = render(
        Path(__file__).with_name("jobs_forecast.md.j2"),
        goals=[(g.words, g.found, verdicts[g.met]) for g in goals],
        tables=tables,
        apart=any(f.split == APART for f in figures),
    )
    page.write_text(text.rstrip() + "\n" + GENERATED, encoding="utf-8")
    facts.write_text(json.dumps([asdict(f) for f in figures], indent=1) + "\n", encoding="utf-8")
    return [page, facts]
