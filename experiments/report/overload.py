"""Makes the pages about overload: the share of the upper bound that each system reaches, which requests miss their
SLOs, and what wrong predictions cost."""

import json
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from experiments.pages.template import records
from experiments.report.comparison import HEADER, PLUGIN, rows_of
from experiments.report.markdown import ESG, VARIANTS, name_of, page
from experiments.report.results import CellResults, Value
from hmas.laws.scoring import jain_index
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import HMAS

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
        goals=" and ".join(f"{goal_at(load):g} at {load:g} λ*" for load in results.experiment.loads),
    )
    return text, {"overload": facts}


def goal_at(load: float) -> float:
    return GOALS.get(load, GOAL)


def robustness(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page about goodput under errors of the predicted length, and its entry of summary.json."""
    summary, rows, rates = {}, [], {}
    for spec, load in results.settings():
        goodput = {s: results.get(spec, load, s, "score", "goodput_rate") for s in results.experiment.systems}
        summary[f"{spec.name} {load:g}"] = {s: round(v.mean, 4) for s, v in goodput.items() if v.count}
        rates[f"{spec.name} {load:g} λ*"] = goodput
        violations = records(*_violations(results, spec, load, "tenants")) if len(spec.tenants) > 1 else []
        table = records(HEADER, rows_of(results, spec, load))
        rows.append({"workload": spec.name, "load": load, "table": table, "violations": violations})
    (out / "robustness.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    systems = results.experiment.systems
    text = page(
        "robustness.md.j2",
        results,
        settings=list(rates),
        ahead=sum(_least_of_ours(each) >= each.get("niyama", NOTHING).mean for each in rates.values()),
        overview=[(name_of(s), *(each[s].text() for each in rates.values())) for s in systems],
    )
    return text, {"robustness": summary}


def _least_of_ours(rates: Mapping[str, Value]) -> float:
    return min(rate.mean for system, rate in rates.items() if system.startswith(HMAS))


def _row(results: CellResults, spec: WorkloadSpec, load: float) -> dict[str, Any]:
    """Returns the entry of `overload.json` for one workload and load. `goodput` and `esg` are those of the default;
    `best` names the system of the highest goodput, variants of the default left out; `systems` holds all. `table`,
    `shortfall`, `ahead` and `violations` are as people read them, with the spread over the seeds."""
    systems = {
        s: {
            "goodput": results.get(spec, load, s, "score", "goodput").mean,
            "goodput_rate": results.get(spec, load, s, "score", "goodput_rate").mean,
            "share_of_bound": results.share_of_bound(spec, load, s).mean,
            "esg": results.get(spec, load, s, "score", "esg_rate").mean,
        }
        for s in results.experiment.systems
    }
    ours, best = systems[HMAS], _best(systems, "goodput", but=VARIANTS)
    grouped = GROUPS if load == max(results.experiment.loads) else ()
    return {
        "workload": spec.name,
        "load": load,
        "seeds": results.get(spec, load, HMAS, "score", "goodput").count,
        "default": HMAS,
        "best": best,
        "level": best in ("", HMAS) or _is_level(results.lead(spec, load, best, HMAS, "score", "goodput_rate")),
        "share_of_bound": ours["share_of_bound"],
        "goodput": ours["goodput"],
        "esg": ours["esg"],
        "systems": systems,
        "bound": results.bound(spec, load).text(),
        "table": records(HEADER, rows_of(results, spec, load)),
        "shortfall": _shortfall(results, spec, load),
        "ahead": _ahead(results, spec, load, {"goodput": best, "ESG": _best(systems, "esg")}),
        "violations": {group: records(*_violations(results, spec, load, group)) for group in grouped},
    }


def _is_level(lead: Value) -> bool:
    """Returns whether a lead is within the spread of its seeds; that of a single seed is not."""
    return lead.count > 1 and lead.mean <= lead.spread


def _shortfall(results: CellResults, spec: WorkloadSpec, load: float) -> dict[str, str] | None:
    """Returns what is known of the default where it stays below its goal: among others the share of the missed requests
    that lie in the longest three deciles. None where it does not."""
    share = results.share_of_bound(spec, load, HMAS)
    if share.mean >= goal_at(load) or not share.count:
        return None
    missed: dict[str, int] = {}
    for run in results.runs(spec, load, HMAS):
        for decile, (offered, ok) in run["deciles"].items():
            missed[decile] = missed.get(decile, 0) + offered - ok
    longest = sum(missed.get(str(n), 0) for n in (7, 8, 9)) / max(1, sum(missed.values()))
    return {
        "share of bound": share.text(),
        "of its misses, in the longest three deciles": f"{longest:.0%}",
        "TPOT compliance": results.get(spec, load, HMAS, "score", "tpot_compliance").text(),
    }


def _ahead(results: CellResults, spec: WorkloadSpec, load: float, best: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns by what factor another system, the `best` by its aim, has more goodput than the default, or more ESG than
    the ESG profile."""
    found = []
    for aim, ours, column in (("goodput", HMAS, "goodput_rate"), ("ESG", ESG, "esg_rate")):
        if best[aim] and best[aim] != ours:
            ahead = results.ratio(spec, load, best[aim], ours, "score", column)
            level = _is_level(results.lead(spec, load, best[aim], ours, "score", column))
            told = f"{ahead.text()}×" + (", level" if level else "")
            found.append({"in": aim, "system": name_of(best[aim]), "ahead": told})
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


def _plain(value: Any) -> Any:
    """Returns the value with numbers rounded, and None for those that were not measured."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 4) if isfinite(value) else None
    return value
