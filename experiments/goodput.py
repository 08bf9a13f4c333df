"""How many requests are on time at each load, with the mesh and without, in virtual time.

The requests are those of `hmas compare`, the engines those of `make run`, perception and cost model those that ship.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.pages.template import table
from experiments.study import Figures, Finished, Options, Study, code_of_mesh, written
from hmas.engine.core.profile import builtin_profile
from hmas.mesh.compare.cli import MAX_MODEL_LEN
from hmas.mesh.compare.simulated import SYSTEMS, Turn, simulated
from hmas.mesh.compare.workload import ReplayWorkload
from hmas_lab.sim.stored import cell_key

PROFILE, ENGINES, WINDOW_S = "tiny-emulated", 2, 60.0
RATES_RPS = (2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.5, 11.0, 13.0)
SIDES = ("direct", "mesh")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCell:
    """One simulated minute of a mesh that has just begun, or of engines alone."""

    side: str
    rate_rps: float
    seed: int

    def key(self) -> str:
        return cell_key(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """What came of one: `on_time` is the share of the offered requests that met their SLOs, `ttft_p50_s` the median
    TTFT in s."""

    side: str
    rate_rps: float
    seed: int
    on_time: float
    ttft_p50_s: float


def cells_of(options: Options) -> list[LoadCell]:
    return [LoadCell(side=side, rate_rps=r, seed=n) for r in RATES_RPS for n in options.numbers for side in SIDES]


def compute(cell: LoadCell) -> Figures:
    """Simulates a minute. Raises ValueError if a package is missing."""
    trace = ReplayWorkload(None, MAX_MODEL_LEN).at(cell.rate_rps, WINDOW_S, cell.seed)
    score = simulated(SYSTEMS[cell.side], Turn(trace, cell.seed), builtin_profile(PROFILE), ENGINES, WINDOW_S).score
    return {"on_time": score.goodput_rate, "ttft_p50_s": score.ttft_p50_s}


def rows_of(options: Options, found: Finished) -> list[LoadRow]:
    """Returns the rows that are finished; if there are none, those that lie in `options.out`."""
    runs = [(cell, run) for cell in cells_of(options) if (run := found.get(cell)) is not None]
    rows = [LoadRow(**asdict(cell), on_time=run["on_time"], ttft_p50_s=run["ttft_p50_s"]) for cell, run in runs]
    return rows or written(LoadRow, options.out / "goodput.json")


def page_of(rows: Sequence[LoadRow], options: Options, found: Finished) -> dict[str, object]:
    """Draws the figure, and returns what the template needs, also of the files of `hmas compare` in `options.out`
    (`minute.json`, `own-engines.json`). Raises OSError if one is missing."""
    minute, own = (json.loads((options.out / f"{name}.json").read_text()) for name in ("minute", "own-engines"))
    _draw(options.out / "figures" / "goodput.svg", rows, minute)
    return {
        "engines": ENGINES, "profile": PROFILE, "seeds": len({row.seed for row in rows}),
        "simulated": [(f"{rate:g}", *(_spread(_at(rows, side, rate)) for side in SIDES)) for rate in RATES_RPS],
        "minute": compared_table(minute), "own": compared_table(own), "own_rate": f"{own['rate_rps']:g}",
        "own_valid": all(own[side]["valid"] for side in SIDES),
        "own_lag": f"{max(1000.0 * (own[side]['engine_lag_p99_s'] or 0.0) for side in SIDES):.0f}",
        "verdict": f"{gaps_said(minute, own)} {_medians(minute, own)}", "memory": _memory(rows, minute),
    }  # fmt: skip


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


STUDY = Study(
    name="goodput",
    about="Simulates how many requests are on time at each load, with the mesh and without, beside what `hmas compare` "
    "has measured.",
    defaults=Options(seeds=3, cells=Path("out/goodput-cells")),
    cells=lambda options, found: [cells_of(options)],
    compute=compute,
    code=code_of_mesh,
    rows=rows_of,
    values=page_of,
)
