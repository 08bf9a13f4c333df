"""Writes the page about a day of nine regimes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments import length_bounds
from experiments.day import (
    ADAPTIVE,
    CAPACITY_RPS,
    ENGINES,
    FIRST,
    FIXED,
    LEAST_LOSS,
    LEAST_REGIMES,
    PROFILE,
    REGIME_S,
    REGIMES,
    REHEARSAL,
    SELECTORS,
    VERSIONS,
    DayCell,
    DayRow,
    DaySummary,
    cells,
    compute,
    finished,
    rows_of,
    summary_of,
)
from experiments.study import Options, Study, code_of_mesh

CLOSED, BEHIND, AHEAD = 0.8, 0.005, 0.02  # the goals of adaptation over the day
HOPELESS = 0.1  # where no topology has more on time, none can be told from another


def page_of(found: Mapping[DayCell, dict[str, Any]], judged: str | None) -> dict[str, object]:
    """Returns what the template needs. `judged`: the version of the day on which adaptation is judged, the first that
    has a place for it. Compared are the seeds that every fixed topology has; adaptation is on the page if it has all of
    these. Raises ValueError if there is none."""
    seeds, chosen = _chosen(found, FIRST)
    if not seeds:
        raise ValueError("no seed has been run under every fixed topology: give the command without --pages-only")
    rows = rows_of(chosen)
    summary = summary_of(rows)
    versions = [name for name in VERSIONS if _chosen(found, name)[0]]
    return {
        "seeds": seeds, "bounds": length_bounds.told(found.values()), "profile": PROFILE, "engines": ENGINES,
        "capacity": CAPACITY_RPS, "regime_s": REGIME_S, "window_s": REHEARSAL.window_s,
        "selectors": SELECTORS.split(","), "summary": summary, "least": LEAST_LOSS, "least_regimes": LEAST_REGIMES,
        "header": ("regime", "load, λ*", "requests", *chosen, "best fixed of the day loses"),
        "hopeless": [regime.name for regime in REGIMES if _best(rows, regime.name) < HOPELESS],
        "hopeless_below": HOPELESS,
        "rows": [_line(regime.name, regime.load, rows, chosen, summary.losses) for regime in REGIMES],
        "days": [(s, f"{fmean(r.goodput_rate for r in rows if r.system == s):.3f}") for s in chosen],
        "harsher": [_harsher(found, name) for name in versions if name != FIRST],
        "adapted": [told for name in versions if (told := _adapted(found, name)) is not None],
        "judged": judged, "verdict": _conclusion(found, judged), "ahead": AHEAD,
        "reach": None if judged is None else _reach(summary_of(rows_of(_chosen(found, judged)[1]))),
    }  # fmt: skip


def document_of(found: Mapping[DayCell, dict[str, Any]], judged: str | None) -> dict[str, Any]:
    """Returns the figures as plain data."""
    seeds, chosen = _chosen(found, FIRST)
    rows = rows_of(chosen)
    summary = asdict(summary_of(rows))
    versions = [name for name in VERSIONS if _chosen(found, name)[0]]
    return {
        "rows": [asdict(row) for row in rows],
        "summary": {n: summary[n] for n in ("best_fixed", "best_topology", "per_regime_best", "adaptive")},
        "seeds": seeds,
        "judged": judged,
        "harsher": {
            name: {"rows": [asdict(r) for r in own], "summary": asdict(summary_of(own))}
            for name in versions
            if name != FIRST and (own := rows_of(_chosen(found, name)[1]))
        },
        "switches": [
            each | {"version": name}
            for name in versions
            for each in _switches(found, name)
            if each["kind"] in ("decided", "rolled_back", "outcome")
        ],
    }


def _of(found: Mapping[DayCell, dict[str, Any]], system: str, version: str) -> dict[int, dict[str, Any]]:
    return {cell.seed: run for cell, run in found.items() if (cell.system, cell.version) == (system, version)}


def _chosen(found: Mapping[DayCell, dict[str, Any]], version: str) -> tuple[list[int], dict[str, list[dict[str, Any]]]]:
    """Returns the seeds that every fixed topology has in a version of the day, and the runs of each system with all of
    them."""
    by_system = {system: _of(found, system, version) for system in (*(t.value for t in FIXED), ADAPTIVE)}
    seeds = sorted(set.intersection(*(set(by_system[t.value]) for t in FIXED)))
    return seeds, {name: [runs[s] for s in seeds] for name, runs in by_system.items() if set(seeds) <= set(runs)}


def _harsher(found: Mapping[DayCell, dict[str, Any]], name: str) -> dict[str, Any]:
    """Returns what the page tells of a harsher version."""
    seeds, chosen = _chosen(found, name)
    rows = rows_of(chosen)
    summary = summary_of(rows)
    load = VERSIONS[name].load
    return {
        "name": name, "version": VERSIONS[name], "seeds": seeds, "summary": summary,
        "lines": [_line(r.name, load * r.load, rows, chosen, summary.losses) for r in REGIMES],
        "header": ("regime", "load, λ*", "requests", *chosen, "best fixed of the day loses"),
    }  # fmt: skip


def _reach(summary: DaySummary) -> float:
    """Returns by how much the best topology of each regime is above the day's best fixed one, over the day."""
    return summary.per_regime_best - summary.best_fixed


def _conclusion(found: Mapping[DayCell, dict[str, Any]], judged: str | None) -> str:
    """Returns whether adaptation earned its place, in words."""
    if judged is None:
        whole = all(_chosen(found, name)[0] for name in VERSIONS)
        if whole and all(len(summary_of(rows_of(_chosen(found, v)[1])).places) < LEAST_REGIMES for v in VERSIONS):
            return "No version of the day has a place for adaptation, so it ships off."
        return "Runs of the fixed topologies are missing, so that adaptation is not judged; it ships off."
    if (told := _adapted(found, judged)) is None:
        return f"On the {judged} day it was not run, so it is not judged; it ships off."
    met = sum(verdict == "met" for *_, verdict in told["goals"])
    off = "" if met == len(told["goals"]) else ": it ships off"
    return f"On the {judged} day it meets {met} of {len(told['goals'])} goals{off}."


def _switches(found: Mapping[DayCell, dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Returns what the controller decided on a version of the day, seed by seed."""
    runs = _of(found, ADAPTIVE, name)
    return [
        each | {"seed": seed} for seed in _chosen(found, name)[0] if seed in runs for each in runs[seed]["switches"]
    ]


def _adapted(found: Mapping[DayCell, dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Returns what the page tells of adaptation on a version of the day; None if it lacks a seed."""
    _, chosen = _chosen(found, name)
    if ADAPTIVE not in chosen:
        return None
    switches, summary = _switches(found, name), summary_of(rows_of(chosen))
    return {
        "name": name, "summary": summary, "goals": _goals(summary), "counts": _counts(switches),
        "misses": _misses(switches), "promises": _promises(switches),
        "outcomes": _outcomes(switches),
        "rehearsed": fmean(run["rehearsed_s"] for run in chosen[ADAPTIVE]) / (len(REGIMES) * VERSIONS[name].each_s),
        "n_run": _span(run["n_run"] for run in chosen[ADAPTIVE]),
        "divided": sum(any(span["topology"] != "mixed" for span in run["layouts"]) for run in chosen[ADAPTIVE]),
        "cpu_s": fmean(run["cpu_s"] for run in chosen[ADAPTIVE]),
    }  # fmt: skip


def _best(rows: Iterable[DayRow], regime: str) -> float:
    return max(row.goodput_rate for row in rows if row.regime == regime and row.system != ADAPTIVE)


def _goals(summary: DaySummary) -> list[tuple[str, str, str]]:
    """Returns goal, measured value and verdict."""
    assert summary.adaptive is not None
    assert summary.worst is not None
    closed = "there is no distance" if summary.closed is None else f"{100 * summary.closed:.0f} %"
    ahead = summary.adaptive - summary.best_fixed
    made = (
        (f"of the distance to the best of each regime, {CLOSED:.0%} closed", closed, (summary.closed or 0) >= CLOSED),
        (
            f"never more than {100 * BEHIND:g} points below the best fixed topology",
            f"least difference {100 * summary.worst:+.1f} points",
            summary.worst >= -BEHIND,
        ),
        (f"{100 * AHEAD:g} points above it over the day", f"{100 * ahead:+.1f} points", ahead >= AHEAD),
    )
    return [(goal, value, "met" if met else "**missed**") for goal, value, met in made]


def _line(
    regime: str, load: float, rows: Iterable[DayRow], chosen: Mapping[str, list[dict[str, Any]]],
    losses: Mapping[str, float],
) -> tuple[str, ...]:  # fmt: skip
    shares = {row.system: row for row in rows if row.regime == regime}
    requests = fmean(run["requests"][regime] for run in next(iter(chosen.values())))
    many = len(next(iter(chosen.values()))) > 1
    told = [f"{shares[system].goodput_rate:.3f}" + (f" ± {shares[system].sd:.3f}" if many else "") for system in chosen]
    return (regime, f"{load:g}", f"{requests:.0f}", *told, f"{100 * losses[regime]:.1f}")


def _outcomes(switches: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Returns a line for each switch, with what was predicted and what came of it: the observed gain, after how many
    seconds it was rolled back, or that another switch came before the outcome was known."""
    lines = list[tuple[str, ...]]()
    found = list(switches)
    for n, each in enumerate(found):
        if each["kind"] != "decided" or each["predicted"] is None:
            continue
        later = [x for x in found[n + 1 :] if x["seed"] == each["seed"]]
        following = next((x for x in later if x["kind"] in ("outcome", "rolled_back", "decided")), None)
        came = "the day ended"
        if following is not None and following["kind"] == "outcome":
            came = f"{100 * following['observed']:+.1f} points"
        elif following is not None:
            after_s = following["at_s"] - each["at_s"]
            came = f"{'rolled back' if following['kind'] == 'rolled_back' else 'switched again'} after {after_s:.0f} s"
        lines.append(
            (str(each["seed"]), f"{each['at_s']:.0f}", each["regime"], each["decision"], each["by"],
             f"{100 * each['predicted']:+.1f}", came)
        )  # fmt: skip
    return lines


def _span(found: Iterable[Sequence[float]]) -> tuple[float, float, float]:
    """Returns the least, the mean and the most of several runs' figures of that form."""
    least, mean, most = zip(*found, strict=True)
    return min(least), fmean(mean), max(most)


def _misses(switches: Iterable[Mapping[str, Any]]) -> list[float]:
    """Returns, in order, by how many points the simulations of rehearsals without a switch missed what was observed."""
    told = (re.search(r"misses by ([\d.]+) points", each["reason"]) for each in switches)
    return sorted(float(found[1]) for found in told if found)


def _promises(switches: Iterable[Mapping[str, Any]]) -> list[float]:
    """Returns, in order, the gain of the best candidate of each rehearsal that found no clear one, in points."""
    unclear = (each["reason"] for each in switches if each["reason"].startswith("no clear gain"))
    return sorted(max(map(float, re.findall(r"([+-][\d.]+) points predicted", reason))) for reason in unclear)


def _counts(switches: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns how many rehearsals abstained, found no clear gain or led to a switch, and how many were rolled back."""
    counts = {"abstained": 0, "no clear gain": 0, "switched": 0, "rolled back": 0}
    for each in switches:
        counts["abstained"] += "abstains" in each["reason"]
        counts["no clear gain"] += each["reason"].startswith("no clear gain")
        counts["switched"] += each["kind"] == "decided" and each["predicted"] is not None
        counts["rolled back"] += each["kind"] == "rolled_back"
    return counts


STUDY: Study[DayCell, DayRow] = Study(
    name="day",
    about="Runs a day of nine regimes under fixed topologies (`--only fixed`: these alone) and, on the first version "
    "of it that has a place for that, with a meta controller that rehearses before it switches. Each seed takes about "
    "half an hour of one core, and adaptation as much again.",
    takes=("out", "seeds", "processes", "cells", "only", "pages_only"),
    defaults=Options(cells=Path("out/day-cells")),
    cells=cells,
    compute=compute,
    code=code_of_mesh,
    rows=lambda options, store: (),
    values=lambda rows, options, store: page_of(*finished(options, store)),
    also=lambda rows, options, store: {"day.json": document_of(*finished(options, store))},
)
