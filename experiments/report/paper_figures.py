"""Makes the pages of Figures 5 and 7 to 9 of H-MAS. The paper prints no values there, so each page checks the direction
of the paper's claims against our numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.report.figures import bars, lines
from experiments.report.markdown import exceeds, name_of, page, verdict
from experiments.report.results import CellResults
from hmas_lab.sim.analysis import SERIES_S
from hmas_lab.sim.sources import WorkloadSpec

Series = dict[str, tuple[Sequence[float], Sequence[float]]]
METRICS = (
    ("goodput /s", "goodput"),
    ("ESG /s", "esg_rate"),
    ("TTFT compliance", "ttft_compliance"),
    ("TPOT compliance", "tpot_compliance"),
)


def _curves(results: CellResults, spec: WorkloadSpec, column: str) -> Series:
    loads = results.experiment.loads
    return {
        name_of(s): (loads, [results.get(spec, load, s, "score", column).mean for load in loads])
        for s in results.experiment.systems
    }


def _series(results: CellResults, spec: WorkloadSpec, load: float, system: str, column: str) -> list[float]:
    """Returns the time series `column` of a system, averaged over seeds."""
    rows = [row["series"][column] for row in results.runs(spec, load, system)]
    return [sum(step) / len(step) for step in zip(*rows, strict=False)]


def _over_time(results: CellResults, spec: WorkloadSpec, load: float, column: str) -> Series:
    found: Series = {}
    for system in results.experiment.systems:
        values = _series(results, spec, load, system, column)
        found[name_of(system)] = ([SERIES_S * (i + 0.5) for i in range(len(values))], values)
    return found


def _ours_is_best(results: CellResults, spec: WorkloadSpec, load: float, column: str, claim: str) -> str:
    """Returns the verdict on the claim that H-MAS has the highest `column`; "not measured" while runs of a system are
    missing."""
    found = {s: results.get(spec, load, s, "score", column) for s in results.experiment.systems}
    if not all(v.count for v in found.values()):
        return verdict(claim, None, "runs are missing")
    best = max(found, key=lambda s: found[s].mean)
    ahead = results.ratio(spec, load, best, "hmas", "score", column)
    numbers = f"highest: {name_of(best)}" + ("" if best == "hmas" else f", {ahead.text()}× ours seed by seed")
    return verdict(claim, best == "hmas", numbers)


def figure5(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Figure 5: scaling with the offered load."""
    spec = results.experiment.workloads[0]
    file = f"figure5-{results.experiment.profile}.svg"
    picture = lines(out / "figures" / file, {title: _curves(results, spec, c) for title, c in METRICS}, "load (λ*)")
    rows = [
        (
            f"{load:g}",
            name_of(s),
            *(results.get(spec, load, s, "score", c).text(3 if "compl" in c else 1) for _, c in METRICS),
        )
        for load in results.experiment.loads
        for s in results.experiment.systems
    ]
    top = max(results.experiment.loads)
    claims = ""
    for other, paper in (("sglang", 1.82), ("vllm", 2.13)):
        ours = results.ratio(spec, top, "hmas", other, "score", "esg_rate")
        claims += verdict(
            f"ESG over {name_of(other)} at the highest load (paper {paper:.2f}×)",
            ours.mean >= paper if ours.count else None,
            f"ours {ours.text(2)}×, {ours.mean / paper:.2f} of the paper's",
        )
    for title, column in METRICS[:2]:
        claims += _ours_is_best(results, spec, top, column, f"H-MAS has the highest {title} at {top:g} λ*")
    header = ("load (λ*)", "system", *(title for title, _ in METRICS))
    return _page(results, f"## `{results.experiment.profile}`", "scaling", picture, claims, header, rows)


def figure7(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Figure 7: ESG over time, and the trade-offs between metrics at two loads."""
    spec = results.experiment.workloads[0]
    panels = {
        f"ESG rate at {load:g} λ*": _over_time(results, spec, load, "esg_rate") for load in results.experiment.loads
    }
    picture = lines(out / "figures" / "figure7.svg", panels, "seconds")
    rows, claims = [], ""
    for load in results.experiment.loads:
        for s in results.experiment.systems:
            done = results.get(spec, load, s, "run", "ended_s")
            columns = [results.get(spec, load, s, "score", c).text(3) for _, c in METRICS]
            throughput = _series(results, spec, load, s, "throughput")
            mean = sum(throughput) / len(throughput) if throughput else float("nan")
            rows.append((f"{load:g}", name_of(s), f"{mean:.2f}", *columns, done.text(0)))
        claims += _ours_is_best(results, spec, load, "esg_rate", f"H-MAS has the highest mean ESG at {load:g} λ*")
    header = ("load (λ*)", "system", "throughput /s", *(t for t, _ in METRICS), "all done after s")
    return _page(results, "# Figure 7: ESG over time and trade-offs", "ESG", picture, claims, header, rows)


def figure8(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Figure 8: TTFT and goodput over time while the workload drifts in stages."""
    load = results.experiment.loads[0]
    panels, claims = {}, ""
    for spec in results.experiment.workloads:
        title = "arrival-rate drift" if spec.kind == "stress" else "task drift"
        panels[f"{title}: goodput /s"] = _over_time(results, spec, load, "goodput")
        panels[f"{title}: mean TTFT (s)"] = _over_time(results, spec, load, "ttft_s")
        worst = {s: max(_series(results, spec, load, s, "ttft_s"), default=float("nan")) for s in ("vllm", "hmas")}
        numbers = f"highest 10 s mean {worst['hmas']:.1f} s against {worst['vllm']:.1f} s"
        claims += verdict(f"{title}: H-MAS keeps TTFT lower than vLLM", exceeds(worst["vllm"], worst["hmas"]), numbers)
        last = {s: _series(results, spec, load, s, "goodput") for s in ("vllm", "hmas")}
        third = {s: sum(x[2 * len(x) // 3 :]) if x else float("nan") for s, x in last.items()}
        claims += verdict(
            f"{title}: more goodput in the last phase",
            exceeds(third["hmas"], third["vllm"]),
            f"{third['hmas'] * SERIES_S:.0f} against {third['vllm'] * SERIES_S:.0f} requests",
        )
    picture = lines(out / "figures" / "figure8.svg", panels, "seconds")
    return _page(results, f"# Figure 8: behaviour under staged drift at {load:g} λ*", "drift", picture, claims)


def figure9(results: CellResults, out: Path) -> tuple[str, dict[str, Any]]:
    """Returns the page of Figure 9, ESG by part (TTFT, TPOT, throughput) of each system in the most congested
    minute and over the run, and its entry of summary.json; writes the picture under `out`."""
    spec, load = results.experiment.workloads[0], results.experiment.loads[-1]
    rows: list[tuple[str, ...]] = []
    groups: dict[str, dict[str, float]] = {}
    for where, key in (("peak minute", "esg_peak"), ("run", "esg")):
        for s in results.experiment.systems:
            parts = [results.get(spec, load, s, key, c) for c in ("ttft", "tpot", "throughput", "total")]
            rows.append((where, name_of(s), *(p.text(0) for p in parts)))
            groups.setdefault(f"{where}", {})[name_of(s)] = parts[3].mean
    share = {}
    for s in ("vllm", "hmas"):
        ttft, total = (results.get(spec, load, s, "esg", c).mean for c in ("ttft", "total"))
        share[s] = ttft / total if total else float("nan")
    picture = bars(out / "figures" / "figure9.svg", groups, "ESG/s")
    claims = verdict(
        "vLLM's ESG has a limited TTFT part, H-MAS's a substantial one",
        exceeds(share["hmas"], share["vllm"]),
        f"{share['hmas']:.0%} against {share['vllm']:.0%} of ESG from requests that met TTFT",
    )
    drop = {}
    for s in ("vllm", "hmas"):
        peak, run = (results.get(spec, load, s, k, "total").mean for k in ("esg_peak", "esg"))
        drop[s] = run / peak if peak else float("nan")
    claims += verdict(
        "H-MAS keeps more of its peak-minute ESG over the run",
        exceeds(drop["hmas"], drop["vllm"]),
        f"run over peak {drop['hmas']:.2f} against {drop['vllm']:.2f}",
    )
    header = ("window", "system", "TTFT part", "TPOT part", "throughput part", "ESG")
    introduction = (
        "ESG/s of the requests that met TTFT, that met TPOT, the base value of all that finished (throughput), and "
        "the total. The throughput part is the same for every system, because each request finishes at last and this "
        "part counts no delay."
    )
    return _page(
        results, f"# Figure 9: ESG by component at {load:g} λ*", "ESG", picture, claims, header, rows, introduction
    )


def _page(
    results: CellResults,
    title: str,
    alt: str,
    picture: str,
    claims: str,
    header: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
    introduction: str = "",
) -> tuple[str, dict[str, Any]]:
    """Returns a page with a figure, the verdicts on the paper's claims and a table of numbers, and an empty entry of
    summary.json."""
    values = {"title": title, "alt": alt, "picture": picture, "claims": claims, "introduction": introduction}
    return page("figure.md.j2", results, header=header, rows=rows, **values), {}
