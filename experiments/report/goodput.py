"""Writes the page about goodput against load, and about simulated against measured comparisons."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.goodput import ENGINES, PROFILE, RATES_RPS, SIDES, LoadRow
from experiments.report.template import render, table

INK, COLOURS = "#7d848d", {"direct": "#e0803a", "mesh": "#2f81f7"}
LABELS = {"direct": "the engines alone", "mesh": "the same engines behind H-MAS"}
FIGURES = (  # name in a score, label, factor, form
    ("goodput_rate", "on time", 100.0, "{:.1f} %"),
    ("ttft_compliance", "TTFT in time", 100.0, "{:.1f} %"),
    ("tpot_compliance", "TPOT in time", 100.0, "{:.1f} %"),
    ("ttft_p50_s", "TTFT p50", 1000.0, "{:.0f} ms"),
    ("ttft_p95_s", "TTFT p95", 1000.0, "{:.0f} ms"),
    ("tpot_p50_s", "TPOT p50", 1000.0, "{:.1f} ms"),
    ("tpot_p95_s", "TPOT p95", 1000.0, "{:.1f} ms"),
)


def write_page(rows: Sequence[LoadRow], out: Path) -> list[Path]:
    """Writes `goodput.md`, `goodput.json` and the figure into `out`, beside the files of `hmas compare` that it reads
    there (`minute.json`, `own-engines.json`), and returns their paths. Raises OSError if one is missing."""
    minute, own = (json.loads((out / f"{name}.json").read_text()) for name in ("minute", "own-engines"))
    page, facts, figure = out / "goodput.md", out / "goodput.json", out / "figures" / "goodput.svg"
    text = render(
        Path(__file__).with_name("goodput.md.j2"), engines=ENGINES, profile=PROFILE,
        seeds=len({row.seed for row in rows}),
        simulated=[(f"{rate:g}", *(_spread(_at(rows, side, rate)) for side in SIDES)) for rate in RATES_RPS],
        minute=compared_table(minute), own=compared_table(own), own_rate=f"{own['rate_rps']:g}",
        own_valid=all(own[side]["valid"] for side in SIDES),
        own_lag=f"{max(1000.0 * (own[side]['engine_lag_p99_s'] or 0.0) for side in SIDES):.0f}",
        verdict=f"{gaps_said(minute, own)} {_medians(minute, own)}", memory=_memory(rows, minute),
    )  # fmt: skip
    page.write_text(text, encoding="utf-8")
    facts.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    _draw(figure, rows, minute)
    return [page, facts, figure]


def _at(rows: Sequence[LoadRow], side: str, rate_rps: float) -> list[float]:
    return [100.0 * row.on_time for row in rows if (row.side, row.rate_rps) == (side, rate_rps)]


def _spread(values: Sequence[float], form: str = "{:.1f} %") -> str:
    return f"{form.format(fmean(values))} ({form.format(min(values)).split()[0]}-{form.format(max(values)).split()[0]})"


def compared_table(compared: dict[str, Any]) -> str:
    """Returns a table of the live runs and the simulated ones, mean (range) over the seeds."""
    columns = [side + kind for side in SIDES for kind in ("", ", simulated")]
    rows = [
        (label, *(_spread([factor * run[name] for run in compared[c]["runs"]], form) for c in columns))
        for name, label, factor, form in FIGURES
    ]
    return table((f"{compared['rate_rps']:g} requests/s", *columns), rows)


def gaps_said(*all_compared: dict[str, Any]) -> str:
    """Says how far simulated shares on time are from measured ones, and how far the seeds are apart."""
    gaps, widths = list[float](), list[float]()
    for compared in all_compared:
        for side in SIDES:
            live, virtual = (compared[name]["runs"] for name in (side, f"{side}, simulated"))
            on_time = [100.0 * run["goodput_rate"] for run in live]
            gaps.append(100.0 * fmean(run["goodput_rate"] for run in virtual) - fmean(on_time))
            widths.append(max(on_time) - min(on_time))
    return (
        f"The simulated share of requests on time lies {min(gaps):+.1f} to {max(gaps):+.1f} points off the measured;\n"
        f"the seeds of one measured column range over {min(widths):.1f} to {max(widths):.1f} points."
    )


def _medians(*all_compared: dict[str, Any]) -> str:
    """Says how far simulated median TTFTs are from measured ones."""
    medians = dict[str, list[float]]()
    for compared in all_compared:
        for side in SIDES:
            live, virtual = (compared[name]["runs"] for name in (side, f"{side}, simulated"))
            ratio = fmean(run["ttft_p50_s"] for run in live) / fmean(run["ttft_p50_s"] for run in virtual)
            medians.setdefault(side, []).append(ratio)
    longer = "; ".join(f"{side} {min(of):.1f} to {max(of):.1f}" for side, of in medians.items())
    return f"The median TTFT,\nmeasured over simulated: {longer}."


def _memory(rows: Sequence[LoadRow], minute: dict[str, Any]) -> str:
    """Tells the median TTFT behind a mesh that begins anew with each minute, beside those of meshes that go through
    all of them: what a mesh remembers changes it."""
    rate_rps = minute["rate_rps"]
    anew = [row.ttft_p50_s for row in rows if (row.side, row.rate_rps) == ("mesh", rate_rps)]
    first, *later = [run["ttft_p50_s"] for run in minute["mesh"]["runs"]]
    virtual = [run["ttft_p50_s"] for run in minute["mesh, simulated"]["runs"]]
    told = {
        "begins anew with each minute, simulated": anew,
        "serves its first minute, measured": [first],
        "the same, simulated": virtual[:1],
        "serves a later minute, measured": later,
        "the same, simulated ": virtual[1:],
    }
    form = "{:.0f} ms"
    return table(
        ("a mesh that ...", "TTFT p50"),
        [(name.strip(), _spread([1e3 * s for s in of], form)) for name, of in told.items()],
    )


def _draw(path: Path, rows: Sequence[LoadRow], minute: dict[str, Any]) -> None:
    """Draws the figure without background, in colours that are readable on white and on black."""
    import matplotlib

    style: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "goodput", "font.size": 9, "text.color": INK}
    style |= dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with matplotlib.rc_context(style):  # type: ignore[arg-type]  # the type stubs accept literal keys only
        from matplotlib.figure import Figure

        drawn = Figure(figsize=(7.0, 3.0), layout="constrained")
        axes = drawn.add_subplot()
        for side, colour in COLOURS.items():
            values = [_at(rows, side, rate) for rate in RATES_RPS]
            axes.fill_between(
                RATES_RPS, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.2, lw=0
            )
            axes.plot(RATES_RPS, [fmean(v) for v in values], color=colour, marker=".", label=LABELS[side])
            live = [100.0 * run["goodput_rate"] for run in minute[side]["runs"]]
            off = [[fmean(live) - min(live)], [max(live) - fmean(live)]]
            axes.errorbar([minute["rate_rps"]], [fmean(live)], yerr=off, color=colour, marker="D", capsize=4, ls="none")
        axes.set(xlabel="offered requests/s", ylabel="% on time", ylim=(0, 103), xlim=(0, None))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower left", title="lines: simulated; diamonds: measured", title_fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
