"""What the regulator and the controller had in force in the runs of a page: N_run, topologies and layouts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from experiments.pages.template import percent, table
from experiments.report.results import CellResults, Row

SHOWN = 3  # topologies of a system that are named
HEADER = ("ours", "runs", "N_run", "topologies (share of the time)", "switches", "divided by pace", "changes")


def in_force(results: CellResults) -> str:
    """Returns a section with a row for each of our systems; empty if none of them was run."""
    found = results.ours()
    return f"\n### In force\n\n{in_force_of(found)}\n" if found else ""


def in_force_of(found: Mapping[str, Sequence[Row]]) -> str:
    """Returns the same as a paragraph and a table, of the runs by system."""
    text = (
        "N_run: the least, the mean and the most over all engines, every 2 s; at the engine's own limit it binds "
        "nothing. Switches of topology and changes of layout are per run, in the mean; what is divided by pace gives "
        "classes of TPOT SLOs engines of their own."
    )
    return f"{text}\n\n{table(HEADER, rows_in_force(found))}"


def rows_in_force(found: Mapping[str, Sequence[Row]]) -> list[tuple[str, ...]]:
    """Returns the rows of that table, with the columns `HEADER`."""
    return [_row(system, runs) for system, runs in found.items()]


def _row(system: str, runs: Sequence[Row]) -> tuple[str, ...]:
    limits = [each["n_run"] for row in runs for each in row["run"]["regulated"]]
    topologies = Counter[str]()
    divided, switches, changes = [], [], []
    for row in runs:
        seconds = row["cell"]["workload"]["duration_s"]
        topologies += _shares(row["run"]["topologies"], seconds)
        layouts = _shares(row["run"]["layouts"], seconds)
        divided.append(sum(share for name, share in layouts.items() if name != "mixed"))
        switches.append(_changes(row["run"]["topologies"], seconds))
        changes.append(_changes(row["run"]["layouts"], seconds))
    whole = sum(topologies.values())
    named = [f"{name} {percent(share / whole)}" for name, share in topologies.most_common(SHOWN)]
    more = [f"{len(topologies) - SHOWN} others"] if len(topologies) > SHOWN else []
    return (
        system,
        str(len(runs)),
        f"{min(limits)}, {fmean(limits):.0f}, {max(limits)}" if limits else "not recorded",
        ", ".join(named + more) or "not recorded",
        f"{fmean(switches):.1f}",
        percent(fmean(divided)),
        f"{fmean(changes):.1f}",
    )


def _shares(spans: Sequence[Mapping[str, Any]], seconds: float) -> Counter[str]:
    """Returns for which share of a run of so many seconds each of the spans' names was in force."""
    shares = Counter[str]()
    for span, following in pairwise([*spans, {"start_s": seconds}]):
        if (held_s := min(following["start_s"], seconds) - span["start_s"]) > 0.0:
            shares[span["topology"]] += held_s / seconds
    return shares


def _changes(spans: Sequence[Mapping[str, Any]], seconds: float) -> int:
    """Returns how often another name came into force in the course of a run; what a run begins with is no change."""
    names = [span["topology"] for span in spans if span["start_s"] < seconds]
    return sum(a != b for a, b in pairwise(names))
