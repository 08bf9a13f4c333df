"""Writes the page of Niyama's evaluation: the paper's values beside ours, and whether order and factors agree."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from experiments.niyama.evaluation import (
    ABLATION,
    ALPHAS,
    DIURNAL,
    HIGH_RPS,
    LOADS_RPS,
    SHARED,
    Evaluation,
    evaluate_all,
)
from experiments.niyama.measure import ALLOWED, QosRun
from experiments.niyama.systems import SYSTEMS
from experiments.niyama.workload import CLASSES
from experiments.report.markdown import verdict
from experiments.study import Options, Study

TOLERANCE = 0.30  # relative deviation of a factor from the paper's that still counts as agreement
TITLES = {"synthetic": "synthetic lengths", "azure-2023-code": "Azure 2023 code trace"}
# Values of the paper. Fig. 7b and Fig. 9 print no numbers; the statements in their text are checked instead.
GOODPUT = {"sarathi-edf": 2.75, "dc": 3.3, "dc+er": 3.6, "niyama": 3.65}  # Table 3
HIGH = {"sarathi-edf": 1.00, "dc": 0.74, "dc+er": 0.26, "niyama": 0.16}  # Table 3, share violated
OVER_FCFS, OVER_EDF = (1.5, 2.4), (1.2, 1.4)  # §4.1.2
DIURNAL_PAPER = {  # Fig. 10: all, important, Q1, Q2, Q3
    "sarathi-fcfs": (0.8188, 0.8196, 0.9713, 0.8914, 0.5957),
    "sarathi-edf": (0.8412, 0.8409, 0.793, 0.8327, 0.8977),
    "niyama": (0.0864, 0.0, 0.1603, 0.0998, 0.0),
}


def name_of(system: str) -> str:
    return SYSTEMS[system].source


def page_of(found: Sequence[Evaluation], seconds: float, duration_s: float) -> dict[str, object]:
    """`seconds` is the CPU time of all runs, `duration_s` the offered time of each."""
    return {
        "found": found, "seconds": seconds, "duration_s": duration_s, "TITLES": TITLES, "ALLOWED": ALLOWED,
        "HIGH_RPS": HIGH_RPS, "titles": [TITLES[e.source] for e in found], "loads": [f"{r:g} QPS" for r in LOADS_RPS],
        "classes": [name for name, _ in CLASSES], **_figure_7b(found), **_table_3(found),
        "figure_9": [(TITLES[e.source], _splits(e), _claims_9(e)) for e in found], "diurnal": _diurnal(found),
        "claims_10": _claims_10(found),
    }  # fmt: skip


def document_of(found: Sequence[Evaluation], seconds: float, duration_s: float) -> str:
    document = {"seconds": round(seconds, 1), "duration_s": duration_s, "evaluations": [e.plain() for e in found]}
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _within(ours: float, low: float, high: float) -> bool:
    """Tells whether a factor lies in the published range from `low` to `high`, widened by `TOLERANCE`."""
    return low * (1 - TOLERANCE) <= ours <= high * (1 + TOLERANCE)


def _ordered(values: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def _figure_7b(found: Sequence[Evaluation]) -> dict[str, Any]:
    systems = ("sarathi-fcfs", "sarathi-edf", "niyama")
    rows = [
        [name_of(s), f"{GOODPUT[s]:.2f}" if s in GOODPUT else "-", *(f"{e.goodput[s]:.2f}" for e in found)]
        for s in systems
    ]
    claims = ""
    for e in found:
        fcfs, edf, niyama = (e.goodput[s] for s in systems)
        ours = ", ".join(f"{x:.2f}" for x in (fcfs, edf, niyama))
        claims += verdict(f"{TITLES[e.source]}: FCFS < EDF < Niyama", _ordered((fcfs, edf, niyama)), ours)
        for other, rate, limits in (("FCFS", fcfs, OVER_FCFS), ("EDF", edf, OVER_EDF)):
            factor = niyama / rate
            claim = f"{TITLES[e.source]}: Niyama over {other} {limits[0]:g} to {limits[1]:g}, within 30 %"
            claims += verdict(claim, _within(factor, *limits), f"{factor:.2f}")
    return {"goodput": rows, "claims_7b": claims}


def _table_3(found: Sequence[Evaluation]) -> dict[str, Any]:
    header = ["", "paper QPS", "gain", "violated"]
    for e in found:
        header += [f"{TITLES[e.source]} QPS", "gain", "violated"]
    columns: list[tuple[Mapping[str, float], Mapping[str, float]]] = [(GOODPUT, HIGH)]
    columns += [(e.goodput, {s: e.high[s]["all"] for s in ABLATION}) for e in found]
    rows = []
    for i, system in enumerate(ABLATION):
        row = [name_of(system)]
        for rates, violated in columns:
            gain = f"{rates[system] / rates[ABLATION[i - 1]] - 1:+.1%}" if i else "-"
            row += [f"{rates[system]:.2f}", gain, f"{violated[system]:.1%}"]
        rows.append(row)
    others = [(e, s, e.high[s]["all"]) for e in found for s in ALPHAS]
    alphas = [
        f"{TITLES[e.source]}, {name_of(s)}: {share:.1%}, {share / max(e.high['dc+er']['all'], 1e-9):.2f}"
        for e, s, share in others
    ]
    return {"header_3": header, "mechanisms": rows, "alphas": alphas, "claims_3": "".join(map(_claims_3, found))}


def _claims_3(e: Evaluation) -> str:
    title, rates, violated = TITLES[e.source], e.goodput, {s: e.high[s]["all"] for s in ABLATION}
    text = verdict(
        f"{title}: each step raises the goodput",
        all(rates[b] >= rates[a] for a, b in pairwise(ABLATION)),
        ", ".join(f"{rates[s]:.2f}" for s in ABLATION),
    )
    text += verdict(
        f"{title}: each step lowers the violations at high load",
        _ordered([-violated[s] for s in ABLATION]),
        ", ".join(f"{violated[s]:.1%}" for s in ABLATION),
    )
    for what, paper, ours in (("goodput", GOODPUT, rates), ("violations", HIGH, violated)):
        for before, after in pairwise(ABLATION):
            claim = f"{title}: {what}, {name_of(after)} over {name_of(before)}"
            by_whom = _violated(e.high[after]) if (what, after) == ("violations", "niyama") else ""
            text += _factor(claim, paper, ours, before, after, by_whom)
    return text


def _violated(figures: Mapping[str, Any]) -> str:
    """Returns whose deadlines a system violates, which tells how it differs from one that gives up by length."""
    classes = ", ".join(f"{share:.1%} of {name}" for name, share in figures["classes"].items())
    return f"Violated are {figures['long']:.1%} of the long prompts, {figures['short']:.1%} of the others; {classes}."


def _factor(
    claim: str, paper: Mapping[str, float], ours: Mapping[str, float], before: str, after: str, why: str
) -> str:
    stated = paper[after] / paper[before]
    found = ours[after] / ours[before] if ours[before] else float("nan")
    numbers = f"paper {stated:.2f}, ours {found:.2f}"
    return verdict(f"{claim}, within 30 %", _within(found, stated, stated), numbers, why)


def _splits(e: Evaluation) -> list[tuple[str, list[list[str]]]]:
    """Returns one table per way to split the requests, with one row per system: the share of missed deadlines at each
    load."""
    of: dict[str, Callable[[dict[str, Any]], float]] = {
        "all": lambda f: f["all"],
        "short prompts": lambda f: f["short"],
        "long prompts (from the 90th percentile)": lambda f: f["long"],
    }
    of |= {name: lambda f, n=name: f["classes"][n] for name, _ in CLASSES}  # type: ignore[misc]
    return [
        (title, [[name_of(s), *(f"{share(e.loads[s][r]):.1%}" for r in LOADS_RPS)] for s in SHARED])
        for title, share in of.items()
    ]


def _claims_9(e: Evaluation) -> str:
    top = {s: e.loads[s][HIGH_RPS] for s in SHARED}
    others = [s for s in SHARED if s != "niyama"]
    fewest = all(e.loads["niyama"][r]["all"] <= min(e.loads[s][r]["all"] for s in others) + 1e-9 for r in LOADS_RPS)
    text = verdict(
        "Niyama violates least at every load",
        fewest,
        f"{top['niyama']['all']:.1%} at {HIGH_RPS:g} QPS",
        _violated(top["niyama"]),
    )
    for s in ("sarathi-fcfs", "sarathi-edf"):
        ratio = top[s]["long"] / top[s]["short"] if top[s]["short"] else float("inf")
        text += verdict(
            f"{name_of(s)} violates long and short prompts alike", 0.7 <= ratio <= 1.3, f"ratio {ratio:.2f}"
        )
    srpf = e.loads["sarathi-srpf"]
    early = next((r for r in LOADS_RPS if srpf[r]["long"] > ALLOWED), None)
    ratio = top["sarathi-srpf"]["long"] / max(top["sarathi-srpf"]["short"], 1e-9)
    text += verdict(
        "Sarathi-SRPF violates long prompts first and most", ratio > 2, f"ratio {ratio:.1f}, from {early} QPS"
    )
    for s in ("sarathi-fcfs", "sarathi-srpf"):
        by_class = next((f["classes"] for f in e.loads[s].values() if f["all"] > ALLOWED), top[s]["classes"])
        text += verdict(
            f"{name_of(s)} violates the strictest class first",
            by_class["Q1"] == max(by_class.values()),
            ", ".join(f"{name} {share:.1%}" for name, share in by_class.items()),
        )
    return text


def _diurnal(found: Sequence[Evaluation]) -> list[list[str]]:
    rows = [[f"{name_of(s)}, paper", *(f"{x:.1%}" for x in DIURNAL_PAPER[s])] for s in DIURNAL]
    for e in found:
        for s in DIURNAL:
            f = e.diurnal[s]
            shares = (f["all"], f["important"], *(f["classes"][name] for name, _ in CLASSES))
            rows.append([f"{name_of(s)}, {TITLES[e.source]}", *(f"{x:.1%}" for x in shares)])
    return rows


def _claims_10(found: Sequence[Evaluation]) -> str:
    text = ""
    for e in found:
        title, ours = TITLES[e.source], {s: e.diurnal[s]["all"] for s in DIURNAL}
        text += verdict(
            f"{title}: Niyama violates no important request",
            e.diurnal["niyama"]["important"] <= 0.001,
            f"{e.diurnal['niyama']['important']:.2%}",
            _violated(e.diurnal["niyama"]),
        )
        text += verdict(
            f"{title}: Niyama an order of magnitude below both",
            ours["niyama"] * 5 <= min(ours["sarathi-fcfs"], ours["sarathi-edf"]),
            ", ".join(f"{share:.1%}" for share in ours.values()),
        )
        for s in DIURNAL:
            paper = DIURNAL_PAPER[s][0]
            text += verdict(
                f"{title}: {name_of(s)}, within 30 %",
                _within(ours[s], paper, paper),
                f"paper {paper:.1%}, ours {ours[s]:.1%}",
                _violated(e.diurnal[s]) if s == "niyama" else "",
            )
    return text


def _evaluated(options: Options) -> tuple[list[Evaluation], float, float]:
    found = evaluate_all(options.cells, options.data, options.seconds, options.processes, print)
    return *found, options.seconds


STUDY: Study[QosRun, Evaluation] = Study(
    name="niyama",
    about="Repeats Niyama's evaluation (Table 3, Fig. 7b, 9 and 10). It takes about 20 minutes of one core with runs "
    "of two hours; those of Fig. 10 always take 4. At most one process per source of lengths is used. Without --data, "
    "only synthetic lengths are used.",
    takes=("out", "seconds", "processes", "cells", "data"),
    defaults=Options(seconds=7200.0, cells=Path("out/niyama-cells")),
    values=lambda rows, options, found: page_of(*_evaluated(options)),
    also=lambda rows, options, found: {"niyama.json": document_of(*_evaluated(options))},
)
