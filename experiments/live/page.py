"""Writes the page of the live ablation of perception."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.live.command import in_real_time, written
from experiments.live.measure import Setup, measure
from experiments.live.prediction_page import BUSY
from experiments.pages.goal import Goal
from experiments.pages.template import percent
from experiments.study import Options, Study
from hmas.laws.slo import DEFAULT_IMPORTANCE

CAPACITY_RPS = 6.8  # of two engines `tiny-emulated` under SLOs alike, by hmas/engine/core/profiles.yaml
COSTS = ("ttft", "tpot")
MOST_MB, LEAST_BY_CATBOOST = 500, 0.95
Document = Any  # what the file of figures holds


def document_of(options: Options) -> Document:
    """Returns the figures: measured, or with `pages_only` those that lie in `options.out`."""
    if options.pages_only:
        return written(options.out / "live-cognition.json")
    setup = Setup(rate_rps=options.rate, scored_s=options.seconds, seeds=tuple(options.numbers))
    found = in_real_time(lambda folder: measure(setup, folder, print))
    return json.loads(json.dumps(found.document()))


def page_of(document: Document) -> dict[str, object]:
    setup, runs = document["setup"], document["runs"]
    by_name = {name: [r for r in runs if r["perception"] == name] for name in setup["perceptions"]}
    differences = [
        _difference(by_name, *pair)
        for pair in (("shipped", "rules"), ("shipped", "prior"), ("shipped", "none"), ("rules", "none"))
        if all(by_name.get(name) for name in pair)
    ]
    return {
        "setup": setup, "importance": DEFAULT_IMPORTANCE, "capacity": CAPACITY_RPS, "cpus": document["cpus"],
        "load_low": f"{min(document['load']):.1f}", "load_high": f"{max(document['load']):.1f}",
        "rows": [_row(name, of) for name, of in by_name.items() if of], "differences": differences,
        "chance": f"1 of {2 ** (len(setup['seeds']) - 1)}",
        "unread": _unread(by_name["shipped"]) if by_name.get("shipped") else "",
        "right_types": document["right_types"], "errors": _errors(runs), "goals": [g.line for g in goals(runs)],
        "busy": max(document["load"]) > BUSY,
        "invalid": [f"{r['perception']}, seed {r['seed']}: {'; '.join(r['reasons'])}" for r in runs if r["reasons"]],
    }  # fmt: skip


def _row(name: str, runs: Sequence[Document]) -> tuple[str, ...]:
    rates = [r["on_time"] for r in runs]
    asked = name != "none"
    return (
        name,
        percent(mean(rates)),
        f"{percent(min(rates))} - {percent(max(rates))}",
        f"{mean(r['goodput_rps'] for r in runs):.2f}",
        f"{mean(r['ttft_p50_s'] for r in runs):.2f}",
        percent(mean(r["answered"] for r in runs)) if asked else "-",
        percent(mean(_read(r["tags"]) for r in runs)) if asked else "-",
        percent(mean(r["by_catboost"] for r in runs)) if asked else "-",
        f"{mean(r['perception_cpu_s'] for r in runs):.1f}" if asked else "-",
    )


def goals(runs: Sequence[Document]) -> list[Goal]:
    """Returns what is asked of perception's process and of the predicted costs, and what came in these runs."""
    own = [run for run in runs if run["perception"] == "shipped"]
    found = []
    if own and all("perception_mb" in run for run in own):
        most = max(run["perception_mb"] for run in own)
        found.append(Goal(f"perception's process has at most {MOST_MB} MB", f"{most:.0f} MB", most <= MOST_MB))
    if own:
        least = min(run["by_catboost"] for run in own)
        words = (
            f"at least {100 * LEAST_BY_CATBOOST:g} % of the costs are CatBoost's in each run of the shipped perception"
        )
        found.append(Goal(words, percent(least), least >= LEAST_BY_CATBOOST))
    for label, ours, *others in _errors(runs):
        words = f"{label}: CatBoost's error is at most the stand-in's"
        found.append(Goal(words, f"{ours} beside {', '.join(others)}", all(float(ours) <= float(x) for x in others)))
    return found


def _read(tags: Mapping[str, float]) -> float:
    return sum(share for source, share in tags.items() if source != "prior")


def _unread(runs: Sequence[Document]) -> str:
    """Returns for which reasons the prior answered in the place of the shipped model, most frequent first."""
    reasons = {reason for run in runs for reason in run["by_prior"]}
    shares = {reason: mean(run["by_prior"].get(reason, 0.0) for run in runs) for reason in reasons}
    return ", ".join(f"{reason} {percent(share)}" for reason, share in sorted(shares.items(), key=lambda s: -s[1]))


def _difference(by_name: Mapping[str, Sequence[Document]], one: str, other: str) -> tuple[str, ...]:
    rates = {name: {r["seed"]: r["on_time"] for r in by_name[name]} for name in (one, other)}
    points = [100.0 * (rates[one][seed] - rates[other][seed]) for seed in rates[one] if seed in rates[other]]
    if all(p > 0.0 for p in points):
        said = f"{one} is ahead in every seed"
    elif all(p < 0.0 for p in points):
        said = f"{one} is behind in every seed"
    else:
        said = "nothing: the seeds do not agree"
    return f"{one} - {other}", ", ".join(f"{p:+.1f}" for p in points), f"{mean(points):+.1f}", said


def _errors(runs: Sequence[Document]) -> list[tuple[str, ...]]:
    """Returns a row for each cost: the mean error of CatBoost, and of the model that stands in for it."""
    names = sorted({key.split()[0] for run in runs for key in run["errors"]} - {"catboost"})
    rows = []
    for cost in COSTS:
        values = [[r["errors"][f"{name} {cost}"] for r in runs if f"{name} {cost}" in r["errors"]]
                  for name in ("catboost", *names)]  # fmt: skip
        if all(values) and names:
            label = {"ttft": "prefill time", "tpot": "time per output token"}[cost]
            rows.append((label, *(f"{mean(each):.3f}" for each in values)))
    return rows


STUDY: Study[None, Document] = Study(
    name="live-cognition",
    about="Starts the mesh with each perception in turn, and sends it typed prompts without SLOs beyond what its "
    "engines can serve. It takes some 20 minutes.",
    template=Path(__file__).with_name("page.md.j2"),
    takes=("out", "seeds", "seconds", "rate", "pages_only"),
    defaults=Options(rate=Setup().rate_rps, seconds=Setup().scored_s, seeds=len(Setup().seeds)),
    rows=lambda options, found: [document_of(options)],
    values=lambda rows, options, found: page_of(rows[0]),
    also=lambda rows, options, found: {"live-cognition.json": rows[0]},
)
