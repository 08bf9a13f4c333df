"""Makes the pages that compare all systems: on one synthetic workload over several loads, and on recorded traces."""

import json
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from experiments.pages.goal import Goal
from experiments.pages.template import records
from experiments.report.figures import lines
from experiments.report.markdown import VARIANTS, name_of, page, verdict
from experiments.report.results import CellResults
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import HMAS

HEADER = (
    "system",
    "goodput rate",
    "share of bound",
    "TTFT compliance",
    "TPOT compliance",
    "ok/s",
    "ESG/s",
    "TTFT p95 s",
)
PLUGIN = "hmas-plugin"
OURS = (HMAS, PLUGIN)
JUDGED_LOAD, LEAST_SHARE = 1.5, 0.95  # the share of the bound that the default should reach on each trace
LIGHT_LOADS = (0.5, 0.8)


def rows_of(results: CellResults, spec: WorkloadSpec, load: float) -> list[tuple[str, ...]]:
    """Returns the rows of a table with the columns `HEADER`, one row per system, best goodput rate first."""
    found = []
    for system in results.experiment.systems:
        score = results.get(spec, load, system, "score", "goodput_rate")
        columns = [
            results.get(spec, load, system, "score", c).text(d)
            for c, d in (
                ("ttft_compliance", 3),
                ("tpot_compliance", 3),
                ("goodput", 2),
                ("esg_rate", 0),
                ("ttft_p95_s", 1),
            )
        ]
        share = results.share_of_bound(spec, load, system).text()
        found.append((score.mean, (name_of(system), score.text(), share, *columns)))
    return [row for _, row in sorted(found, key=lambda item: -item[0] if item[0] == item[0] else 1.0)]


def write_rows(
    path: Path, header: Sequence[str], rows: Mapping[tuple[WorkloadSpec, float], Sequence[tuple[str, ...]]]
) -> None:
    """Writes the rows of each setting, which have the columns `header`, as JSON."""
    found = [
        {"workload": spec.name, "load": load, "table": records(header, some)} for (spec, load), some in rows.items()
    ]
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def ratios(results: CellResults) -> dict[float, float]:
    """Returns the goodput of H-MAS over that of plain vLLM by load, on the first workload, averaged over seeds."""
    spec = results.experiment.workloads[0]
    found = {load: results.ratio(spec, load, "hmas", "vllm", "score", "goodput") for load in results.experiment.loads}
    return {load: v.mean for load, v in found.items() if v.count}


def loads_page(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page that compares H-MAS with every baseline at the paper's loads, and its entry of summary.json."""
    spec = results.experiment.workloads[0]
    found = ratios(results)
    loads = sorted(found)
    systems = results.experiment.systems
    series = {
        name_of(s): (loads, [results.get(spec, load, s, "score", "goodput_rate").mean for load in loads])
        for s in systems
    }
    series["upper bound"] = (loads, [results.bound(spec, load).mean for load in loads])
    picture = lines(out / "figures" / "loads.svg", {"goodput rate": series}, "load (λ*)", columns=1)
    overloaded = [load for load in loads if load > 1.0]
    light = [found[load] for load in loads if load in LIGHT_LOADS]
    paper = [
        (
            f"{load:g} λ*",
            "1.2-3.0×" if load > 1.0 else "not worse",
            f"{found[load]:.2f}×",
            f"{found[load] / 3.0:.2f}" if load > 1.0 else "-",
            results.bound(spec, load).text(),
        )
        for load in loads
    ]
    claims = verdict("Never worse at light load", min(light) >= 0.98 if light else None, _show(light)) + verdict(
        "More goodput in overload",
        all(found[x] > 1.2 for x in overloaded) if overloaded else None,
        _show([found[x] for x in overloaded]),
    )
    text = page("loads.md.j2", results, picture=picture, paper=paper, claims=claims)
    write_rows(out / "loads.json", HEADER, {where: rows_of(results, *where) for where in results.settings()})
    return text, {"goodput_ratio_vs_vllm": extremes(results.experiment.loads, found)}


def extremes(loads: tuple[float, ...], found: dict[float, float]) -> dict[str, float]:
    """Returns the lowest goodput ratio in `found` at the highest load, at the lowest load above λ*, and at light load;
    nan if a load needed for it has not been run."""

    def least(chosen: list[float]) -> float:
        return min((round(found[x], 4) for x in chosen), default=nan) if set(chosen) <= set(found) else nan

    overloaded = [x for x in loads if x > 1.0]
    return {
        "highest_load": least([x for x in overloaded if x == max(overloaded)]),
        "lowest_overloaded": least([x for x in overloaded if x == min(overloaded)]),
        "lightest": least([x for x in loads if x in LIGHT_LOADS]),
    }


def _show(numbers: list[float]) -> str:
    return ", ".join(f"{x:.2f}×" for x in numbers) or "no runs"


def trace_rows(results: CellResults) -> list[dict[str, Any]]:
    """Returns the entries of `traces.json`, one for each trace, load and system with a finished run; `sd` is None for
    one seed, and `share_of_bound` where no bound was computed. `table` is what people read, with spreads."""
    rows: list[dict[str, Any]] = []
    for spec, load in results.settings():
        tables = {row["system"]: row for row in records(HEADER, rows_of(results, spec, load))}
        for system in results.experiment.systems:
            rate = results.get(spec, load, system, "score", "goodput_rate")
            share = results.share_of_bound(spec, load, system)
            if rate.count:
                rows.append(
                    {
                        "trace": spec.name,
                        "load": load,
                        "system": system,
                        "goodput_rate": round(rate.mean, 4),
                        "sd": round(rate.spread, 4) if rate.count > 1 else None,
                        "share_of_bound": round(share.mean, 4) if share.count else None,
                        "seeds": rate.count,
                        "table": tables[name_of(system)],
                    }
                )
    return rows


def traces_page(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page that compares all systems on recorded traces, and its entry of summary.json; writes
    `traces.json` beside it."""
    (out / "traces.json").write_text(json.dumps(trace_rows(results), indent=1) + "\n", encoding="utf-8")
    best: dict[str, Any] = {}
    shares: dict[str, float] = {}
    for spec, load in results.settings():
        shares = {s: results.share_of_bound(spec, load, s).mean for s in results.experiment.systems}
        if all(share == share for share in shares.values()):
            rival = max(sorted(shares.keys() - {*OURS, *VARIANTS}), key=lambda s: shares[s])
            rounded = {s: round(shares[s], 4) for s in (rival, *OURS) if s in shares}
            best[f"{spec.name} {load:g}"] = {"best_other": rival} | rounded
    wins = {s: sum(row[s] >= row[row["best_other"]] for row in best.values()) for s in OURS if s in shares}
    ahead = {s: _ahead(results, s) for s in OURS if s in shares}
    text = page(
        "traces.md.j2",
        results,
        settings=len(best),
        wins=wins,
        ahead=ahead,
        goals=[goal.line for goal in trace_goals(results, ahead)],
        shown=tuple(name_of(s) for s in OURS if s in results.experiment.systems),
        overview=[_overview(results, spec, load) for spec, load in results.settings()],
    )
    return text, {"traces": best, "traces_ahead_beyond_spread": {s: len(found) for s, found in ahead.items()}}


def _overview(results: CellResults, spec: WorkloadSpec, load: float) -> tuple[str, ...]:
    """Returns a table row: the goodput rates of the bound, of ours, and of the best other system."""
    rates = {s: results.get(spec, load, s, "score", "goodput_rate") for s in results.experiment.systems}
    rivals = [s for s in _rivals(results) if rates[s].count]
    best = max(rivals, key=lambda s: rates[s].mean, default="")
    other = (name_of(best), rates[best].text()) if best else ("not measured", "-")
    ours = (rates[s].text() for s in OURS if s in rates)
    return (f"{spec.name} {load:g} λ*", results.bound(spec, load).text(), *ours, *other)


def trace_goals(results: CellResults, ahead: Mapping[str, list[str]]) -> list[Goal]:
    """Returns what was aimed at on recorded traces. `ahead`: where another system leads by more than the spread, by
    ours. A verdict is None where its runs are not finished."""
    found = []
    if HMAS in ahead:
        told = _count(ahead[HMAS])
        found.append(
            Goal(
                "over plain HTTP no other system is ahead by more than the spread",
                told,
                _no(ahead[HMAS], results, HMAS, 2),
            )
        )
    if PLUGIN in ahead:
        leads = _leads(results, PLUGIN)
        words = "with the plug-in no other system is ahead at all"
        found.append(Goal(words, _count(leads), _no(leads, results, PLUGIN, 1)))
    for spec, load in results.settings():
        if load == JUDGED_LOAD:
            share = results.share_of_bound(spec, load, HMAS)
            words = f"{spec.name} at {load:g}: at least {LEAST_SHARE:g} of the bound"
            found.append(Goal(words, share.text(), share.mean >= LEAST_SHARE if share.count else None))
    return found


def _count(leads: list[str]) -> str:
    return f"one is in {len(leads)}" if leads else "none is"


def _no(leads: list[str], results: CellResults, ours: str, seeds: int) -> bool | None:
    """Returns whether there are no leads; None if there are none, but some system has fewer than `seeds` seeds."""
    if leads:
        return False
    found = [
        results.lead(spec, load, s, ours, "score", "goodput_rate").count
        for spec, load in results.settings()
        for s in _rivals(results)
    ]
    return True if found and min(found) >= seeds else None


def _rivals(results: CellResults) -> list[str]:
    return [s for s in results.experiment.systems if s not in {*OURS, *VARIANTS}]


def _leads(results: CellResults, ours: str) -> list[str]:
    """Returns for each setting in which another system's mean goodput rate is higher which one leads by most."""
    told = []
    for spec, load in results.settings():
        leads = {s: results.lead(spec, load, s, ours, "score", "goodput_rate") for s in _rivals(results)}
        higher = {s: lead for s, lead in leads.items() if lead.count and lead.mean > 0.0}
        if higher:
            system, lead = max(higher.items(), key=lambda each: each[1].mean)
            told.append(f"{spec.name} at {load:g}: {name_of(system)} by {lead.text(1, 100.0)} points")
    return told


def _ahead(results: CellResults, ours: str) -> list[str]:
    """Returns for each setting in which another system's goodput rate leads by more than the spread of the differences
    over the seeds: which one leads by most, and by how many points."""
    told = []
    for spec, load in results.settings():
        leads = {s: results.lead(spec, load, s, ours, "score", "goodput_rate") for s in _rivals(results)}
        beyond = {s: lead for s, lead in leads.items() if lead.count > 1 and lead.mean > lead.spread}
        if beyond:
            system, lead = max(beyond.items(), key=lambda each: each[1].mean)
            told.append(f"{spec.name} at {load:g}: {name_of(system)} by {lead.text(1, 100.0)} points")
    return told
