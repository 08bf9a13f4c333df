"""Draws the figures of a load report as SVG text."""

import io
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hmas.contracts.outcome import Outcome
from hmas.laws.scoring import Score
from hmas_loadgen.result import LoadResult
from hmas_loadgen.timeline import Timeline, during

SIZE_INCHES = (6.4, 3.0)
CDF_POINTS = 400  # quantiles drawn per curve, so that the file stays small however long the run is


def draw(title: str, x_label: str, y_label: str, plot: Callable[[Axes], None]) -> str:
    """Returns one figure as an `<svg>` element. `plot` draws the content into the axes. Text stays text, and the same
    content gives the same bytes."""
    style = {"svg.fonttype": "none", "svg.hashsalt": title, "axes.grid": True, "grid.alpha": 0.3, "font.size": 9}
    with matplotlib.rc_context(style):  # type: ignore[arg-type]  # the type stubs accept literal keys only
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        axes = figure.add_subplot()
        plot(axes)
        axes.set(title=title, xlabel=x_label, ylabel=y_label)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=8, loc="lower right")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def cdf(results: Sequence[LoadResult], metric: str) -> str:
    """Draws the cumulative distribution of `metric` (`ttft_s` or `tpot_s`) over the finished requests of each run."""

    def plot(axes: Axes) -> None:
        levels = np.linspace(0, 1, CDF_POINTS)
        for result in results:
            values = [getattr(s, metric) for s in result.settlements() if s.outcome is Outcome.FINISHED]
            known = [value * 1000 for value in values if value]  # a TPOT of 0 (one token) has no place on the axis
            if known:
                axes.plot(np.quantile(known, levels), levels, label=result.name)
        axes.set_xscale("log")

    name = metric.removesuffix("_s").upper()
    return draw(f"{name} of finished requests", f"{name}, ms", "share of requests", plot)


def over_time(results: Sequence[LoadResult], metric: str, title: str, y_label: str) -> str:
    """Draws `metric`, a field of `ScoreWindow`, over the time of each run."""

    def plot(axes: Axes) -> None:
        for result in results:
            found = result.windows()
            edges = [*(window.start_s for window in found), result.offered_s]
            axes.stairs([getattr(window, metric) for window in found], edges, baseline=None, label=result.name)
        axes.set_ylim(bottom=0)

    return draw(title, "seconds since the start", y_label, plot)


def bars(title: str, scores: Mapping[str, Mapping[str, Score]]) -> str:
    """Draws the goodput rate by group (task type or tenant), with one bar per run. `scores`: run → group → score."""
    groups = sorted({group for found in scores.values() for group in found})

    def plot(axes: Axes) -> None:
        width = 0.8 / max(1, len(scores))
        for number, (run, found) in enumerate(scores.items()):
            places = np.arange(len(groups)) + (number - (len(scores) - 1) / 2) * width
            axes.bar(places, [found[g].goodput_rate if g in found else 0.0 for g in groups], width, label=run)
        axes.set_xticks(range(len(groups)), groups, rotation=30, ha="right")
        axes.set_ylim(0, 1)

    return draw(title, "", "goodput rate", plot)


def control(timeline: Timeline, started_unix_s: float, seconds: float) -> str:
    """Draws what the mesh decided during a run that began at `started_unix_s` and lasted `seconds`: topologies as
    coloured spans, N_run and B_token of each worker as lines."""
    found = during(timeline, started_unix_s, seconds)

    def plot(axes: Axes) -> None:
        spans = [(_number(e, "at_s"), str(e["topology"])) for e in found.get("topology", ())]
        colours = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(name for _, name in spans))}
        for (begin, name), (until, _) in pairwise([*spans, (seconds, "")]):
            axes.axvspan(begin, until, alpha=0.15, color=colours[name])
            axes.annotate(name, (begin, 1), xycoords=("data", "axes fraction"), fontsize=7, rotation=90, va="top")
        entries = found.get("control", ())
        for worker in dict.fromkeys(str(e.get("worker", "")) for e in entries):
            points = [e for e in entries if str(e.get("worker", "")) == worker]
            times = [*(_number(e, "at_s") for e in points), seconds]
            for knob in ("n_run", "b_token"):
                values = [_number(e, knob) for e in points]
                axes.step(times, [*values, values[-1]], where="post", label=f"{worker} {knob}".strip())

    return draw("Topology and control tuple", "seconds since the start", "", plot)


def _number(event: Mapping[str, object], key: str) -> float:
    value = event.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
