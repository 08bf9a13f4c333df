"""Overload: every system's share of what was possible, who misses, and what wrong predictions cost."""

import json
from collections.abc import Collection, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from experiments.report.comparison import HEADER, rows_of
from experiments.report.markdown import VARIANTS, incomplete, name_of, setting, table
from experiments.report.results import CellResults, Value
from hmas.laws.scoring import jain_index
from hmas.sim.sources import WorkloadSpec
from hmas.sim.systems import HMAS

GOAL = 0.95  # of the upper bound
NOTHING = Value(float("nan"), 0.0, 0)
ESG, PLUGIN = "hmas-esg", "hmas-plugin"


def overload(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    rows = [_row(results, spec, load) for spec, load in results.settings()]
    document = json.dumps([_plain(row) for row in rows], indent=2, allow_nan=False)
    (out / "overload.json").write_text(document + "\n", encoding="utf-8")
    measured = [row for row in rows if isfinite(row["goodput"])]
    best = sum(row["best"] == HMAS for row in measured)
    near = sum(row["share_of_bound"] >= GOAL for row in measured)
    gain = sum(_best(row["systems"], "esg") == ESG for row in measured)
    inside = sum(_best(row["systems"], "goodput", but={HMAS, ESG}) == PLUGIN for row in measured)
    text = (
        "# Overload\n\nThe default profile (MaxOnTime) where not everything can be on time. The bound knows every "
        "length and arrival, may pause and resume answers at no cost, and counts the time after the last arrival; a "
        "share of it is a lower bound on the share of what was possible. Clients state their SLOs, so that every "
        "system knows them.\n\n"
        + setting(results)
        + incomplete(results)
        + f"\nNo other system has more goodput than the default in {best} of {len(measured)} settings, or than the "
        f"default over engines with the vLLM plug-in in {inside}; the default has at least {GOAL:g} of the bound in "
        f"{near}; the ESG profile has the most ESG in {gain}. Rows: [overload.json](overload.json).\n\n"
        + table(
            (
                "setting",
                "default, share of bound",
                "goodput rate",
                "with the plug-in",
                "next best",
                "its goodput rate",
                "best in ESG",
            ),
            [_overview(results, row) for row in rows],
        )
        + "\n"
        + _shortfall(results)
        + _behind(results, rows)
        + "\n".join(_section(results, spec, load) for spec, load in results.settings())
    )
    return text, {"overload": {"settings": len(measured), "best": best, "near_bound": near, "esg_best": gain}}


def robustness(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Goodput against the error of the predicted length."""
    parts, summary = [], {}
    for spec, load in results.settings():
        parts.append(f"## {spec.name} at {load:g} λ*\n\n" + table(HEADER, rows_of(results, spec, load)))
        if _names_tenants(spec):
            parts.append(_shares(results, spec, load, "tenants"))
        goodput = {s: results.get(spec, load, s, "score", "goodput_rate") for s in results.experiment.systems}
        summary[f"{spec.name} {load:g}"] = {s: round(v.mean, 4) for s, v in goodput.items() if v.count}
    text = (
        "# Wrong predictions in overload\n\n`hmas-error-N`: N % log-normal error of the predicted length (`hmas`: "
        "35 %). `hmas-short-claims`: the answers of tenant alpha look a tenth as long as they are. Niyama relegates "
        "eagerly, on its own estimate.\n\n" + setting(results) + incomplete(results) + "\n" + "\n".join(parts)
    )
    return text, {"robustness": summary}


def _row(results: CellResults, spec: WorkloadSpec, load: float) -> dict[str, Any]:
    """What `overload.json` holds of a setting. `goodput` and `esg` are those of the default, `best` is the best of it
    and the other systems, its own variants left out, `systems` holds all."""
    systems = {
        s: {
            "goodput": results.get(spec, load, s, "score", "goodput").mean,
            "goodput_rate": results.get(spec, load, s, "score", "goodput_rate").mean,
            "share_of_bound": results.share_of_bound(spec, load, s).mean,
            "esg": results.get(spec, load, s, "score", "esg_rate").mean,
        }
        for s in results.experiment.systems
    }
    ours = systems[HMAS]
    return {
        "workload": spec.name,
        "load": load,
        "seeds": results.get(spec, load, HMAS, "score", "goodput").count,
        "default": HMAS,
        "best": _best(systems, "goodput", but=VARIANTS),
        "share_of_bound": ours["share_of_bound"],
        "goodput": ours["goodput"],
        "esg": ours["esg"],
        "systems": systems,
    }


def _shortfall(results: CellResults) -> str:
    """Where the default stays below the goal, and whose requests it gave up there."""
    rows = []
    for spec, load in results.settings():
        share = results.share_of_bound(spec, load, HMAS)
        if share.mean >= GOAL or not share.count:
            continue
        missed: dict[str, int] = {}
        for run in results.runs(spec, load, HMAS):
            for decile, (offered, ok) in run["deciles"].items():
                missed[decile] = missed.get(decile, 0) + offered - ok
        longest = sum(missed.get(str(n), 0) for n in (7, 8, 9)) / max(1, sum(missed.values()))
        tpot = results.get(spec, load, HMAS, "score", "tpot_compliance").text()
        rows.append((f"{spec.name} {load:g} λ*", share.text(), f"{longest:.0%}", tpot))
    if not rows:
        return ""
    return (
        f"## Below {GOAL:g} of the bound\n\n"
        + table(("setting", "share of bound", "of its misses, in the longest three deciles", "TPOT compliance"), rows)
        + "\nWhat is given up is long work. The bound may start a long answer in time, set it aside and finish it "
        "after the last arrival, which no engine here does: the shorter the slice, the more that is worth. Tried in "
        "single short runs, each moving goodput by about a point at most: other shares of the measured rate to plan "
        "with, other weights of decode work, slots kept free for what is to come, utilisation bands from 0.85 to 1.15 "
        "of the tightest TPOT; and a bound with a price on slots at the end, which is no tighter.\n\n"
    )


def _behind(results: CellResults, rows: Sequence[dict[str, Any]]) -> str:
    """Where another system has more goodput than the default, or more ESG than the ESG profile, and why."""
    found = []
    for (spec, load), row in zip(results.settings(), rows, strict=True):
        aims = (("goodput", HMAS, "goodput_rate", row["best"]), ("ESG", ESG, "esg_rate", _best(row["systems"], "esg")))
        for aim, ours, column, best in aims:
            if best and best != ours:
                ahead = results.ratio(spec, load, best, ours, "score", column)
                found.append((f"{spec.name} {load:g} λ*", aim, name_of(best), f"{ahead.text()}×"))
    if not found:
        return ""
    return (
        "## Where another is ahead\n\n"
        + table(("setting", "in", "ahead", "of the default, or of the ESG profile; seed by seed"), found)
        + "\nNiyama runs inside the engine and gives prefill, at every step, the room that the requests which decode "
        "leave it; the default sees engines from outside. With the plug-in it has the same means (first table). At "
        "twice the load half of the work is given up, nearly all of it long: what to serve is then a matter of length "
        "alone, and the due dates by which the ESG profile plans as well add nothing. Tried in single short runs: "
        "setting late work aside sooner, which hardly moves ESG.\n\n"
    )


def _best(systems: dict[str, dict[str, float]], figure: str, but: Collection[str] = ()) -> str:
    ranked = [s for s, v in systems.items() if isfinite(v[figure]) and s not in but]
    return max(ranked, key=lambda s: systems[s][figure], default="")


def _overview(results: CellResults, row: dict[str, Any]) -> tuple[str, ...]:
    spec = next(s for s in results.experiment.workloads if s.name == row["workload"])
    load, systems = row["load"], row["systems"]

    def rate(system: str) -> str:
        known = system in systems
        return (results.get(spec, load, system, "score", "goodput_rate") if known else NOTHING).text()

    other = _best(systems, "goodput", but=VARIANTS | {HMAS})
    share = results.share_of_bound(spec, load, HMAS).text()
    name = f"{spec.name} {load:g} λ*"
    return (name, share, rate(HMAS), rate(PLUGIN), name_of(other), rate(other), name_of(_best(systems, "esg")))


def _section(results: CellResults, spec: WorkloadSpec, load: float) -> str:
    limit = results.bound(spec, load).text()
    text = f"## {spec.name} at {load:g} λ*\n\nBound on the goodput rate: {limit}.\n\n"
    text += table(HEADER, rows_of(results, spec, load))
    if load == max(results.experiment.loads):
        text += "".join(_shares(results, spec, load, group) for group in ("tasks", "deciles", "tenants"))
    return text


GROUPS = {"tasks": "task type", "deciles": "decile of the output length", "tenants": "tenant"}


def _shares(results: CellResults, spec: WorkloadSpec, load: float, group: str) -> str:
    """Share of requests that missed an SLO, by group, all seeds together."""
    systems: Sequence[str] = [s for s in results.experiment.systems if results.runs(spec, load, s)]
    counts: dict[str, dict[str, list[int]]] = {}
    for system in systems:
        for run in results.runs(spec, load, system):
            for name, (offered, ok) in run[group].items():
                cell = counts.setdefault(name, {}).setdefault(system, [0, 0])
                cell[0] += offered
                cell[1] += ok
    rows = [
        (name, *(f"{1.0 - by[s][1] / by[s][0]:.2f}" if s in by else "-" for s in systems))
        for name, by in sorted(counts.items())
    ]
    if group == "tenants":
        shares = {s: [by[s][1] / by[s][0] for by in counts.values() if s in by] for s in systems}
        rows.append(("Jain index of attainment", *(f"{jain_index(shares[s]):.3f}" for s in systems)))
        served = (results.get(spec, load, s, "score", "jain_index").text() for s in systems)
        rows.append(("Jain index of service tokens", *served))
    return f"\nViolations by {GROUPS[group]}:\n\n" + table((GROUPS[group], *(name_of(s) for s in systems)), rows)


def _names_tenants(spec: WorkloadSpec) -> bool:
    return len(spec.tenants) > 1


def _plain(value: Any) -> Any:
    """Rounded; what was not measured is null."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 4) if isfinite(value) else None
    return value
