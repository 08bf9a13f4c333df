"""Makes the pages about overload: the share of the upper bound that each system reaches, which requests miss their
SLOs, and what wrong predictions cost."""

import json
from collections.abc import Collection, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from experiments.report.comparison import HEADER, PLUGIN, rows_of
from experiments.report.markdown import ESG, VARIANTS, name_of, page
from experiments.report.results import CellResults, Value
from hmas.laws.scoring import jain_index
from hmas.sim.sources import WorkloadSpec
from hmas.sim.systems import HMAS

GOALS = {2.0: 0.93}  # share of the upper bound that the default should reach, by load
GOAL = 0.95  # at every other load
NOTHING = Value(float("nan"), 0.0, 0)


def overload(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    rows = [_row(results, spec, load) for spec, load in results.settings()]
    document = json.dumps([_plain(row) for row in rows], indent=2, allow_nan=False)
    (out / "overload.json").write_text(document + "\n", encoding="utf-8")
    measured = [row for row in rows if isfinite(row["goodput"])]
    facts = {
        "settings": len(measured),
        "best": sum(row["best"] == HMAS for row in measured),
        "level": sum(row["level"] for row in measured),
        "near_bound": sum(row["share_of_bound"] >= goal_at(row["load"]) for row in measured),
        "esg_best": sum(_best(row["systems"], "esg") == ESG for row in measured),
    }
    text = page(
        "overload.md.j2",
        results,
        facts=facts,
        inside=sum(_best(row["systems"], "goodput", but={HMAS, ESG}) == PLUGIN for row in measured),
        overview=[_overview(results, row) for row in rows],
        shortfall=_shortfall(results),
        behind=_behind(results, rows),
        goals=" and ".join(f"{goal_at(load):g} at {load:g} λ*" for load in results.experiment.loads),
        **BY_SETTING,
    )
    return text, {"overload": facts}


def goal_at(load: float) -> float:
    return GOALS.get(load, GOAL)


def robustness(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page about goodput under errors of the predicted length, and its entry of summary.json."""
    summary = {}
    for spec, load in results.settings():
        goodput = {s: results.get(spec, load, s, "score", "goodput_rate") for s in results.experiment.systems}
        summary[f"{spec.name} {load:g}"] = {s: round(v.mean, 4) for s, v in goodput.items() if v.count}
    return page("robustness.md.j2", results, **BY_SETTING), {"robustness": summary}


def _row(results: CellResults, spec: WorkloadSpec, load: float) -> dict[str, Any]:
    """Returns the entry of `overload.json` for one workload and load. `goodput` and `esg` are those of the default;
    `best` names the system of the highest goodput, variants of the default left out; `systems` holds all."""
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
        "best": (best := _best(systems, "goodput", but=VARIANTS)),
        "level": best in ("", HMAS) or _is_level(results.lead(spec, load, best, HMAS, "score", "goodput_rate")),
        "share_of_bound": ours["share_of_bound"],
        "goodput": ours["goodput"],
        "esg": ours["esg"],
        "systems": systems,
    }


def _is_level(lead: Value) -> bool:
    """Returns whether a lead is within the spread of its seeds; that of a single seed is not."""
    return lead.count > 1 and lead.mean <= lead.spread


def _shortfall(results: CellResults) -> list[tuple[str, ...]]:
    """Returns table rows for the settings in which the default stays below its goal, with the share of the missed
    requests that lie in the longest three deciles."""
    rows: list[tuple[str, ...]] = []
    for spec, load in results.settings():
        share = results.share_of_bound(spec, load, HMAS)
        if share.mean >= goal_at(load) or not share.count:
            continue
        missed: dict[str, int] = {}
        for run in results.runs(spec, load, HMAS):
            for decile, (offered, ok) in run["deciles"].items():
                missed[decile] = missed.get(decile, 0) + offered - ok
        longest = sum(missed.get(str(n), 0) for n in (7, 8, 9)) / max(1, sum(missed.values()))
        tpot = results.get(spec, load, HMAS, "score", "tpot_compliance").text()
        rows.append((f"{spec.name} {load:g} λ*", share.text(), f"{longest:.0%}", tpot))
    return rows


def _behind(results: CellResults, rows: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns table rows for the settings in which another system has more goodput than the default, or more ESG than
    the ESG profile, and by what factor."""
    found: list[tuple[str, ...]] = []
    for (spec, load), row in zip(results.settings(), rows, strict=True):
        aims = (("goodput", HMAS, "goodput_rate", row["best"]), ("ESG", ESG, "esg_rate", _best(row["systems"], "esg")))
        for aim, ours, column, best in aims:
            if best and best != ours:
                ahead = results.ratio(spec, load, best, ours, "score", column)
                level = _is_level(results.lead(spec, load, best, ours, "score", column))
                told = f"{ahead.text()}×" + (", level" if level else "")
                found.append((f"{spec.name} {load:g} λ*", aim, name_of(best), told))
    return found


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


GROUPS = {"tasks": "task type", "deciles": "decile of the output length", "tenants": "tenant"}


def _violations(
    results: CellResults, spec: WorkloadSpec, load: float, group: str
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Returns header and rows of a table of the share of requests that missed an SLO, by `group` (a key of `GROUPS`),
    over all seeds."""
    systems: Sequence[str] = [s for s in results.experiment.systems if results.runs(spec, load, s)]
    counts: dict[str, dict[str, list[int]]] = {}
    for system in systems:
        for run in results.runs(spec, load, system):
            for name, (offered, ok) in run[group].items():
                cell = counts.setdefault(name, {}).setdefault(system, [0, 0])
                cell[0] += offered
                cell[1] += ok
    rows: list[tuple[str, ...]] = [
        (name, *(f"{1.0 - by[s][1] / by[s][0]:.2f}" if s in by else "-" for s in systems))
        for name, by in sorted(counts.items())
    ]
    if group == "tenants":
        shares = {s: [by[s][1] / by[s][0] for by in counts.values() if s in by] for s in systems}
        rows.append(("Jain index of attainment", *(f"{jain_index(shares[s]):.3f}" for s in systems)))
        served = (results.get(spec, load, s, "score", "jain_index").text() for s in systems)
        rows.append(("Jain index of service tokens", *served))
    return [GROUPS[group], *map(name_of, systems)], rows


BY_SETTING = {"HEADER": HEADER, "GROUPS": GROUPS, "rows_of": rows_of, "violations": _violations}


def _plain(value: Any) -> Any:
    """Returns the value with numbers rounded, and None for those that were not measured."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 4) if isfinite(value) else None
    return value
