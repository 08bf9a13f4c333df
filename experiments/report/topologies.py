"""Makes the page that compares the best fixed topology with every adaptive choice, per workload, to show whether the
meta controller pays."""

from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.report.comparison import write_rows
from experiments.report.markdown import page
from experiments.report.results import CellResults, Value
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import FIXED_PREFIX, HMAS, PAPER

PAYS = 0.005  # smallest difference in goodput rate that counts; less is noise
SELECTORS = {
    HMAS: "rules (default)",
    PAPER: "rules as published",
    "meta-scripted-llm": "asked, by a script instead of a language model",
}
Scores = dict[str, Value]
Setting = tuple[WorkloadSpec, float]


def topologies(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page, with the ranking of systems per workload and the difference of each adaptive choice to the best
    fixed topology, and its entry of summary.json."""
    measured = {s: found for s in results.settings() if _comparable(found := _scores(results, *s))}
    gains = [_gain(scores, HMAS) for scores in measured.values()]
    text = page(
        "topologies.md.j2",
        results,
        PAYS=PAYS,
        fmean=fmean,
        gains=gains,
        paid=sum(g > PAYS for g in gains),
        lost=sum(g < -PAYS for g in gains),
        overview=_overview(results, measured),
        names=[_name(s) for s in measured],
        selectors=_selectors(measured),
    )
    rankings = {where: _ranking(results, where, scores) for where, scores in measured.items()}
    write_rows(out / "topologies.json", ("system", "goodput rate", "share of bound", "ESG/s", "TTFT p95 s"), rankings)
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


def _overview(results: CellResults, measured: dict[Setting, Scores]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
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
    return rows


def _selectors(measured: dict[Setting, Scores]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for system, title in SELECTORS.items():
        gains = [_gain(scores, system) if system in scores else float("nan") for scores in measured.values()]
        known = [g for g in gains if g == g]
        mean = f"{fmean(known):+.3f}" if known else "not measured"
        rows.append((title, *(f"{g:+.3f}" if g == g else "not measured" for g in gains), mean))
    return rows


def _ranking(results: CellResults, where: Setting, scores: Scores) -> list[tuple[str, ...]]:
    return [
        (
            _short(s),
            scores[s].text(),
            results.share_of_bound(*where, s).text(),
            results.get(*where, s, "score", "esg_rate").text(0),
            results.get(*where, s, "score", "ttft_p95_s").text(1),
        )
        for s in sorted(scores, key=lambda s: -scores[s].mean)
    ]


def _facts(scores: Scores) -> dict[str, Any]:
    best = _best_fixed(scores)
    return {
        "best_fixed": _short(best),
        "best_fixed_goodput_rate": round(scores[best].mean, 4),
        **{s.replace("-", "_"): round(scores[s].mean, 4) for s in SELECTORS if s in scores},
    }
