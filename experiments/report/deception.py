"""Writes the page about prompts that mislead perception and a model that begins to answer otherwise."""

from collections.abc import Mapping, Sequence
from math import exp
from statistics import fmean, median
from typing import Any

from experiments import length_bounds
from experiments.deception import (
    ARMS,
    DECEIVER,
    ENGINES,
    FROM_S,
    LEAST_BIAS,
    LOAD,
    MOST_LOST,
    PROFILE,
    WINDOW,
    DeceptionCell,
    DeceptionRun,
    Halved,
    cells,
    code_of_deception,
    compute,
    found_of,
    given,
    halved,
)
from experiments.pages.paired import Paired, paired
from experiments.report.worth import points
from experiments.study import Options, Study

MET = "met"


def rows_of(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each scenario, from its λ* and runs as `deception.found_of` returns them."""
    return [_row(name, runs) for name, runs in found.items()]


def page_of(rows: Sequence[dict[str, Any]], found: Mapping[str, Any], duration_s: float) -> dict[str, object]:
    every = [run for runs in found.values() for arm in ARMS for run in runs[arm]]
    cpu_s = sum(runs["capacity"]["cpu_s"] for runs in found.values()) + sum(run.cpu_s for run in every)
    return {
        "DECEIVER": DECEIVER, "duration_s": duration_s, "ENGINES": ENGINES, "FROM_S": FROM_S,
        "LEAST_BIAS": LEAST_BIAS, "LOAD": LOAD, "PROFILE": PROFILE, "WINDOW": WINDOW, "most_lost": 100 * MOST_LOST,
        "seeds": max(len(runs["misled"]) for runs in found.values()), "lengths": [_lengths(row) for row in rows],
        "goodput": [_goodput(row) for row in rows], "verdicts": [_verdict(row) for row in rows],
        "reasons": [_reason(row) for row in rows if _kept(row["others_change"]) != MET],
        "bounds": length_bounds.told(run.bounds for run in every), "cpu_min": cpu_s / 60.0,
    }  # fmt: skip


def _row(name: str, runs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the figures of one scenario; errors are factors, answer over prediction."""
    misled: Sequence[DeceptionRun] = runs["misled"]
    control: Sequence[DeceptionRun] = runs["control"]
    told: Sequence[DeceptionRun] = runs["told"]
    ends = [halved(run) for run in misled]
    wrong = [end for end in ends if end is not None]
    return {
        "scenario": name,
        "capacity_rps": runs["capacity"]["rate_rps"],
        "settled": sum(len(run.raw) for run in misled),
        "error": exp(_mean(x for run in misled for x in run.raw)),
        "error_frozen": exp(_mean(x for run in misled for x in run.frozen)),
        "error_corrected": exp(_mean(x for run in misled for x in run.corrected)),
        "error_at_last": exp(_mean(run.later for run in misled)),
        "error_told": exp(_mean(x for run in told for x in run.corrected)),
        "spread": _mean(abs(x) for run in misled for x in run.raw),
        "spread_corrected": _mean(abs(x) for run in misled for x in run.corrected),
        "wrong": len(wrong),
        "halved": sum(end.settled is not None for end in wrong),
        "halved_after": _median(wrong, "settled"),
        "halved_after_s": _median(wrong, "after_s"),
        "others": fmean(run.others for run in misled),
        "others_change": paired([run.others for run in misled], [run.others for run in control]),
        "others_known": paired([run.others for run in misled], [run.others for run in runs["known"]]),
        "others_told": paired([run.others for run in told], [run.others for run in control]),
        "own": fmean(run.own for run in misled),
        "own_change": paired([run.own for run in misled], [run.own for run in control]),
        "seeds": len(misled),
    }


def _mean(values: Any) -> float:
    found = list(values)
    return fmean(found) if found else 0.0


def _median(ends: Sequence[Halved], name: str) -> float | None:
    """Returns the median over the seeds in which the error was halved; None if it was in none."""
    found = [x for end in ends if (x := getattr(end, name)) is not None]
    return float(median(found)) if found else None


def _after(row: Mapping[str, Any]) -> tuple[str, str]:
    if not row["wrong"]:
        return "nothing to halve", ""
    if row["halved_after"] is None:
        return "never", ""
    return f"{row['halved_after']:.0f}", f"{row['halved_after_s']:.0f}"


def _lengths(row: Mapping[str, Any]) -> tuple[str, ...]:
    errors = (
        f"{row[name]:.2f}" for name in ("error", "error_frozen", "error_corrected", "error_at_last", "error_told")
    )
    spreads = (f"{row[name]:.2f}" for name in ("spread", "spread_corrected"))
    return row["scenario"], str(row["settled"]), *errors, *spreads, *_after(row), f"{row['halved']} of {row['wrong']}"


def _goodput(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        row["scenario"],
        f"{row['capacity_rps']:.2f}",
        f"{row['others']:.3f}",
        points(row["others_change"]),
        _kept(row["others_change"]),
        points(row["others_told"]),
        points(row["others_known"]),
        f"{row['own']:.3f}",
        points(row["own_change"]),
    )


def _kept(change: Paired) -> str:
    if change.mean - change.half >= -MOST_LOST:
        return MET
    return "met on average, not beyond chance" if change.mean >= -MOST_LOST else "**not met**"


def _reason(row: Mapping[str, Any]) -> str:
    """Says what of a loss remains where the correction has each length from the start."""
    lost, told = row["others_change"], row["others_told"]
    late = lost.mean - told.mean
    told_of = f"{points(lost)} points, and {points(told)} where the correction is told each length at its grant: "
    if abs(late) <= lost.half:
        why = "late news of lengths is not what costs them, within what the seeds can tell"
    elif late < 0.0:
        why = f"late news of lengths costs them {100 * -late:.1f} points"
    else:
        why = "news of lengths at once would not have helped them"
    return f"- {row['scenario']}: {told_of}{why}.\n"


def _verdict(row: Mapping[str, Any]) -> str:
    after, after_s = _after(row)
    if after == "nothing to halve":
        correction = f"perception's lengths are not wrong on average (by less than a factor of {exp(LEAST_BIAS):.2f})"
    elif after == "never":
        correction = "the correction **never halved** the error"
    else:
        correction = f"the error was halved after {after} settled requests ({after_s} s)"
    own = row["own_change"]
    pays = "changes nothing" if own.noise else "pays" if own.mean > 0 else "does not pay"
    return (
        f"- {row['scenario']}: {correction}. The other tenants change by {points(row['others_change'])} points, within "
        f"{100 * MOST_LOST:g}: {_kept(row['others_change'])} (against perfect knowledge of the misled requests "
        f"{points(row['others_known'])}: {_kept(row['others_known'])}); for the tenant itself it {pays} "
        f"({points(own)} points).\n"
    )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, x in row.items():
        if isinstance(x, Paired):
            plain |= {name: round(x.mean, 4), f"{name}_half_interval": round(x.half, 4)}
        else:
            plain[name] = round(x, 4) if isinstance(x, float) else x
    return plain


STUDY: Study[DeceptionCell, dict[str, Any]] = Study(
    name="deception",
    about="Measures what misleading prompts and a changed model do to the lengths that the mesh goes by and to the "
    "other tenants.",
    takes=("out", "seeds", "seconds", "processes", "cells"),
    defaults=Options(seconds=120.0),
    cells=cells,
    compute=compute,
    given=given,
    code=code_of_deception,
    rows=lambda options, found: rows_of(found_of(options, found)),
    plain=lambda row: _plain(row),
    values=lambda rows, options, found: page_of(rows, found_of(options, found), options.seconds),
)
