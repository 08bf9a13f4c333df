"""Is the meta controller worth it? The best fixed topology beside every adaptive one, per workload."""

from pathlib import Path
from typing import Any

from services.sim.report.markdown import incomplete, setting, table
from services.sim.report.results import Results, Value
from services.sim.systems import FIXED_PREFIX, HMAS

PAYS = 0.005  # of goodput rate: less is noise


def topologies(results: Results, out: Path) -> tuple[str, dict[str, Any]]:
    fixed = [s for s in results.experiment.systems if s.startswith(FIXED_PREFIX)]
    adaptive = [s for s in results.experiment.systems if not s.startswith(FIXED_PREFIX)]
    header = ("system", "goodput rate", "share of bound", "ESG/s", "TTFT p95 s")
    overview, parts, summary = [], "", {}
    for spec, load in results.settings():
        scores = {s: results.get(spec, load, s, "score", "goodput_rate") for s in (*fixed, *adaptive)}
        measured = {s: v for s, v in scores.items() if v.count}
        if HMAS not in measured or not any(s in measured for s in fixed):
            continue
        best_fixed = _best(measured, fixed)
        best_adaptive = _best(measured, adaptive)
        gain = measured[best_adaptive].mean - measured[best_fixed].mean
        said = "yes" if gain > PAYS else "no difference" if gain > -PAYS else "**no**"
        default = measured[HMAS]
        overview.append(
            (
                f"{spec.name} {load:g} λ*",
                f"{_short(best_fixed)} {measured[best_fixed].text()}",
                f"hmas {default.text()}",
                f"{_short(best_adaptive)} {measured[best_adaptive].text()}",
                f"{gain:+.3f}",
                said,
            )
        )
        summary[f"{spec.name} {load:g}"] = {
            "best_fixed": _short(best_fixed),
            "best_fixed_goodput_rate": round(measured[best_fixed].mean, 4),
            "hmas": round(default.mean, 4),
            "best_adaptive": best_adaptive,
            "best_adaptive_goodput_rate": round(measured[best_adaptive].mean, 4),
        }
        ranked = sorted(measured, key=lambda s: -measured[s].mean)
        rows = [
            (
                _short(s),
                measured[s].text(),
                results.share_of_bound(spec, load, s).text(),
                results.get(spec, load, s, "score", "esg_rate").text(0),
                results.get(spec, load, s, "score", "ttft_p95_s").text(1),
            )
            for s in ranked
        ]
        parts += f"### {spec.name} at {load:g} λ*\n\n" + table(header, rows) + "\n"
    text = (
        "# Fixed topologies and adaptive ones\n\nA fixed topology is an operator's pin; everything else (cognition, "
        "fence, Statera) is the same. Adaptation pays where an adaptive system beats the best fixed one by more than "
        f"{PAYS:.3f} of goodput rate. The best fixed topology is known only afterwards.\n\n"
        + setting(results)
        + incomplete(results)
        + "\n"
        + table(("workload", "best fixed", "default", "best adaptive", "gain", "adaptation pays"), overview)
        + "\n"
        + parts
    )
    return text, {"topologies": summary}


def _best(scores: dict[str, Value], among: list[str]) -> str:
    return max((s for s in among if s in scores), key=lambda s: scores[s].mean)


def _short(system: str) -> str:
    return system.removeprefix(FIXED_PREFIX)
