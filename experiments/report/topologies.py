"""Is the meta controller worth it? The best fixed topology beside every adaptive one, per workload."""

from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.report.markdown import incomplete, setting, table
from experiments.report.results import CellResults, Value
from hmas.sim.sources import WorkloadSpec
from hmas.sim.systems import FIXED_PREFIX, HMAS, PAPER

PAYS = 0.005  # of goodput rate: less is noise
SELECTORS = {
    HMAS: "rules (default)",
    PAPER: "rules as published",
    "meta-scripted-llm": "asked, by a script instead of a language model",
    "meta-classifier": "classifier",
    "meta-bandit": "contextual bandit",
    "meta-changepoint": "change-point and lookup",
}
Scores = dict[str, Value]
Setting = tuple[WorkloadSpec, float]


def topologies(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Every workload's ranking, then what each way of choosing loses against knowing the best fixed one beforehand."""
    measured = {s: found for s in results.settings() if _comparable(found := _scores(results, *s))}
    text = (
        "# Fixed topologies and adaptive ones\n\nA fixed topology is an operator's pin; everything else (cognition, "
        "fence, Statera) is the same. Adaptation pays where the default beats the best fixed topology by more than "
        f"{PAYS:.3f} of goodput rate. The best fixed topology is known only afterwards. The paper prints no such "
        "table; in its Table 2 a fixed FCFS has 0.87× and rules have 0.89× the goodput of its language model.\n\n"
        + setting(results)
        + incomplete(results)
        + "\n"
        + _verdict(measured)
        + "\n"
        + _overview(results, measured)
        + "\n## Every Π_meta against the best fixed topology\n\nDifference of goodput rates. A language model of 30 B: "
        "not measured.\n\n" + _selectors(measured) + "\n" + "".join(_ranking(results, s, measured[s]) for s in measured)
    )
    return text, {"topologies": {_name(s): _facts(scores) for s, scores in measured.items()}}


def _scores(results: CellResults, spec: WorkloadSpec, load: float) -> Scores:
    found = {s: results.get(spec, load, s, "score", "goodput_rate") for s in results.experiment.systems}
    return {s: v for s, v in found.items() if v.count}


def _comparable(scores: Scores) -> bool:
    return HMAS in scores and any(s.startswith(FIXED_PREFIX) for s in scores)


def _best_fixed(scores: Scores) -> str:
    return max((s for s in scores if s.startswith(FIXED_PREFIX)), key=lambda s: scores[s].mean)


def _gain(scores: Scores, system: str) -> float:
    return scores[system].mean - scores[_best_fixed(scores)].mean


def _said(gain: float) -> str:
    return "pays" if gain > PAYS else "no difference" if gain >= -PAYS else "**loses**"


def _name(where: Setting) -> str:
    return f"{where[0].name} {where[1]:g}"


def _short(system: str) -> str:
    return system.removeprefix(FIXED_PREFIX)


def _verdict(measured: dict[Setting, Scores]) -> str:
    gains = [_gain(scores, HMAS) for scores in measured.values()]
    if not gains:
        return "Not measured.\n"
    paid, lost = sum(g > PAYS for g in gains), sum(g < -PAYS for g in gains)
    word = "pays" if paid > lost else "does not pay"
    return (
        f"**Adaptation {word} here**: the default beats the best fixed topology in {paid} of {len(gains)} workloads "
        f"and loses to it in {lost}; the mean difference is {fmean(gains):+.3f}.\n"
    )


def _overview(results: CellResults, measured: dict[Setting, Scores]) -> str:
    rows = []
    for (spec, load), scores in measured.items():
        best, gain = _best_fixed(scores), _gain(scores, HMAS)
        shares = (results.share_of_bound(spec, load, s).text() for s in (best, HMAS))
        rows.append(
            (
                f"{spec.name} {load:g} λ*",
                f"{_short(best)} {scores[best].text()}",
                scores[HMAS].text(),
                " / ".join(shares),
                f"{gain:+.3f}",
                _said(gain),
            )
        )
    header = ("workload", "best fixed", "default", "share of bound: best fixed / default", "difference", "adaptation")
    return table(header, rows)


def _selectors(measured: dict[Setting, Scores]) -> str:
    rows = []
    for system, title in SELECTORS.items():
        gains = [_gain(scores, system) if system in scores else float("nan") for scores in measured.values()]
        known = [g for g in gains if g == g]
        mean = f"{fmean(known):+.3f}" if known else "not measured"
        rows.append((title, *(f"{g:+.3f}" if g == g else "not measured" for g in gains), mean))
    return table(("Π_meta", *(_name(s) for s in measured), "mean"), rows)


def _ranking(results: CellResults, where: Setting, scores: Scores) -> str:
    rows = [
        (
            _short(s),
            scores[s].text(),
            results.share_of_bound(*where, s).text(),
            results.get(*where, s, "score", "esg_rate").text(0),
            results.get(*where, s, "score", "ttft_p95_s").text(1),
        )
        for s in sorted(scores, key=lambda s: -scores[s].mean)
    ]
    header = ("system", "goodput rate", "share of bound", "ESG/s", "TTFT p95 s")
    return f"\n### {where[0].name} at {where[1]:g} λ*\n\n" + table(header, rows)


def _facts(scores: Scores) -> dict[str, Any]:
    best = _best_fixed(scores)
    return {
        "best_fixed": _short(best),
        "best_fixed_goodput_rate": round(scores[best].mean, 4),
        **{s.replace("-", "_"): round(scores[s].mean, 4) for s in SELECTORS if s in scores},
    }
