"""Draws both sides of a comparison: of the requests of each second, how many met their SLOs and how many did not."""

import io
from collections.abc import Mapping, Sequence
from math import ceil

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from hmas.laws.scoring import Settlement, is_ok

SIZE_INCHES = (8.0, 3.6)
ON_TIME, LATE, INK = "#2f81f7", "#e0803a", "#7d848d"  # each is readable on white and on black, and to the colour-blind


def picture(title: str, sides: Mapping[str, Sequence[Settlement]], window_s: float) -> str:
    """Returns an SVG file with a row of bars for each side, one bar per second of `window_s`, on the same scale.

    It has no background, so that it suits light and dark pages. The same settlements give the same bytes.
    """
    seconds = ceil(window_s)
    style = {"svg.fonttype": "none", "svg.hashsalt": title, "font.size": 9, "text.color": INK, "axes.labelcolor": INK}
    style |= {"axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK}
    with matplotlib.rc_context(style):  # type: ignore[arg-type]  # the type stubs accept literal keys only
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        rows = figure.subplots(len(sides), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, (name, settlements) in zip(rows, sides.items(), strict=True):
            ok, late = (_by_second([s for s in settlements if is_ok(s) is met], seconds) for met in (True, False))
            axes.bar(range(seconds), ok, 0.85, align="edge", color=ON_TIME, label="on time")
            axes.bar(range(seconds), late, 0.85, align="edge", bottom=ok, color=LATE, label="late or not answered")
            share = ok.sum() / max(1, len(settlements))
            axes.set_title(f"{name}: {share:.0%} of {len(settlements)} requests on time", loc="left", fontsize=10)
            axes.spines[["top", "right"]].set_visible(False)
        figure.supylabel("requests of each second", fontsize=9)
        rows[-1].set_xlabel(f"second of arrival; {title}")
        rows[0].legend(ncols=2, frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 1.35))
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _by_second(settlements: Sequence[Settlement], seconds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Returns how many requests were offered in each second; those of the very end count in the last."""
    places = [min(int(s.offered_s), seconds - 1) for s in settlements]
    return np.bincount(np.array(places, dtype=np.int64), minlength=seconds)
