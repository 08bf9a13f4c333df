"""Makes the pages of Tables 1, 2 and 4 of H-MAS, with the paper's values beside ours."""

from pathlib import Path
from typing import Any

from experiments.report.markdown import counted, exceeds, name_of, page, verdict
from experiments.report.results import CellResults, Value
from hmas_lab.sim.systems import PAPER

TABLE_1 = {  # scenario -> system -> (mismatch mean, p95, TTFT compliance, normalised goodput)
    "burst": {"vllm": (1.560, 3.588, 0.1924, 0.2557), "hmas": (1.203, 2.767, 0.8176, 0.6831)},
    "drift": {"vllm": (1.835, 2.110, 0.2896, 0.2896), "hmas": (1.415, 1.627, 0.8803, 0.7199)},
    "shift": {"vllm": (2.202, 5.606, 0.1125, 0.1125), "hmas": (1.798, 4.094, 0.6012, 0.4357)},
}
TABLE_2 = {  # variant -> (title, ESG, TTFT95, TPOT95, goodput), relative to H-MAS
    PAPER: ("H-MAS", 1.0, 1.0, 1.0, 1.0),
    "no-two-lane": ("Disable Two-lane", 0.88, 2.92, 1.08, 0.91),
    "frozen-statera": ("Freeze Statera", 0.23, 6.57, 0.92, 0.63),
    "no-meta": ("Disable Meta (FCFS)", 0.78, 3.16, 1.07, 0.87),
    "rules-cognition": ("Rule-based Perception & Prediction", 0.28, 3.95, 0.88, 0.74),
}
METRICS_2 = ("ESG", "TTFT95", "TPOT95", "goodput")
RULES_2 = (
    0.89,
    2.73,
    1.04,
    0.89,
)  # the paper's row of a rule-based meta controller, with which H-MAS as published runs here


def _ratio(paper: float, ours: float) -> str:
    return f"{ours / paper:.2f}" if paper and ours == ours else "-"


def table1(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Table 1: mismatch, TTFT compliance and goodput in the three slices, at each load."""
    slices, summary, rows = [], {}, []
    for load in results.experiment.loads:
        claims, some, facts = _slices(results, load)
        slices.append((load, claims))
        rows += [(f"{load:g} λ*", *row) for row in some]
        summary[f"{load:g}"] = facts
    count = counted("".join(claims for _, claims in slices))
    return page("table1.md.j2", results, slices=slices, rows=rows, **count), {"table1": summary}


METRICS_1 = (
    ("mismatch mean", ("mismatch", "mean")),
    ("mismatch p95", ("mismatch", "p95")),
    ("TTFT compliance", ("score", "ttft_compliance")),
    ("goodput", ("score", "goodput_rate")),
)


def _slices(results: CellResults, load: float) -> tuple[str, list[tuple[str, ...]], dict[str, Any]]:
    """Returns the verdicts on the paper's claims at one load, the rows of the table, and the entry of summary.json."""
    claims, facts = "", {}
    rows: list[tuple[str, ...]] = []
    for spec in results.experiment.workloads:
        for system in results.experiment.systems:
            paper = TABLE_1[spec.kind].get(system)
            for i, (title, path) in enumerate(METRICS_1):
                ours = results.get(spec, load, system, *path)
                shown = (f"{paper[i]:.4g}", _ratio(paper[i], ours.mean)) if paper else ("not in the paper", "-")
                rows.append((spec.kind, name_of(system), title, shown[0], ours.text(), shown[1]))
        ttft = results.get(spec, load, "hmas", "score", "ttft_compliance").mean
        needed = TABLE_1[spec.kind]["hmas"][2]
        claims += verdict(
            f"{spec.kind}: TTFT compliance of the paper's {needed:.2%}", exceeds(ttft, needed - 1e-9), f"{ttft:.2%}"
        )
        for title, (_, path), better in (("lower mismatch", METRICS_1[0], -1), ("more goodput", METRICS_1[3], 1)):
            a, b = (results.get(spec, load, s, *path).mean for s in ("hmas", "vllm"))
            claims += verdict(
                f"{spec.kind}: {title} than vLLM", exceeds(better * a, better * b), f"{a:.3f} against {b:.3f}"
            )
        facts[spec.kind] = {"ttft_compliance": round(ttft, 4)}
    return claims, rows, facts


def table2(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Table 2: the ablation, with figures relative to the full system."""
    spec, load = results.experiment.workloads[0], results.experiment.loads[0]
    paths = (("score", "esg_rate"), ("score", "ttft_p95_s"), ("score", "tpot_p95_s"), ("score", "goodput"))
    rows, ours = [], {}
    for variant, (title, *paper) in TABLE_2.items():
        values = [results.ratio(spec, load, variant, PAPER, *path) for path in paths]
        ours[variant] = values
        for metric, p, v in zip(METRICS_2, paper, values, strict=True):
            rows.append((title, metric, f"{p:.2f}×", v.text(2), _ratio(p, v.mean)))
    for metric, p in zip(METRICS_2, RULES_2, strict=True):
        rows.append(("Rule-based Meta", metric, f"{p:.2f}×", "1.00 (the full system here)", _ratio(p, 1.0)))
    rows.append(("Meta by a language model of 30 B", "all", "1.00×", "not measured", "-"))
    extra = [
        (name_of(s), *(results.ratio(spec, load, s, PAPER, *path).text(2) for path in paths))
        for s in results.experiment.systems
        if s not in TABLE_2
    ]
    text = page("table2.md.j2", results, spec=spec, load=load, claims=_ablation_claims(ours), rows=rows, extra=extra)
    shown = {v: {"esg": round(x[0].mean, 4), "goodput": round(x[3].mean, 4)} for v, x in ours.items() if x[0].count}
    return text, {"table2": shown}


def _ablation_claims(ours: dict[str, list[Value]]) -> str:
    """Returns the verdicts on the claims that switching off each component costs goodput, and Statera most. `ours`
    holds the figures of each variant in the order of `METRICS_2`."""
    text = ""
    measured = {v: x[3].mean for v, x in ours.items() if x[3].count and v != PAPER}
    for variant, mean in measured.items():
        text += verdict(f"{TABLE_2[variant][0]} costs goodput", mean < 0.995, f"{mean:.3f}×")
    if measured:
        worst = min(measured, key=lambda v: measured[v])
        text += verdict("Freezing Statera hurts most", worst == "frozen-statera", f"worst: {TABLE_2[worst][0]}")
    return text
