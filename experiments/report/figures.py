"""Draws figures as small SVG files. The same numbers give the same bytes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Points = tuple[Sequence[float], Sequence[float]]
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#222222")


def _pyplot() -> Any:
    import matplotlib  # imported late, because it takes half a second

    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "hmas",
            "font.size": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
        }
    )
    from matplotlib import pyplot

    return pyplot


def _save(pyplot: Any, figure: Any, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path.name


def lines(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    x_label: str,
    columns: int = 2,
    *,
    legends: bool = False,
) -> str:
    """Draws line plots, one panel per title in `panels`, and writes them to `path`. Each panel maps the label of a line
    to its (x, y) values; the first has a legend, or each with `legends`. Returns the file's name."""
    pyplot = _pyplot()
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.6 * columns, 2.3 * rows), squeeze=False)
    flat = [axis for row in axes for axis in row]
    for axis, (title, series) in zip(flat, panels.items(), strict=False):
        for colour, (label, (x, y)) in zip(COLOURS, series.items(), strict=False):
            axis.plot(x, y, label=label, color=colour, linewidth=1.2, marker="o" if len(x) < 12 else None, markersize=3)
        axis.set_title(title)
        axis.set_xlabel(x_label)
    for axis in flat[len(panels) :]:
        axis.set_visible(False)
    for axis in flat[: len(panels)] if legends else flat[:1]:
        axis.legend(frameon=False, fontsize=7)
    return _save(pyplot, figure, path)


def bars(path: Path, groups: Mapping[str, Mapping[str, float]], y_label: str) -> str:
    """Draws grouped bars and writes them to `path`. `groups`: group -> label -> height. Returns the file's name."""
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7.2, 2.6))
    labels = list(dict.fromkeys(label for group in groups.values() for label in group))
    width = 0.8 / max(len(labels), 1)
    for i, label in enumerate(labels):
        heights = [group.get(label, 0.0) for group in groups.values()]
        axis.bar([x + i * width for x in range(len(groups))], heights, width, label=label, color=COLOURS[i % 8])
    axis.set_xticks([x + 0.4 - width / 2 for x in range(len(groups))], list(groups))
    axis.set_ylabel(y_label)
    axis.legend(frameon=False, fontsize=7, ncols=4)
    return _save(pyplot, figure, path)


def heatmaps(
    path: Path, panels: Mapping[str, Sequence[Sequence[float]]], rows: Sequence[str], x_label: str, columns: int = 2
) -> str:
    """Draws one heatmap per title in `panels`, from white (0) to dark (the panel's highest value), and writes them to
    `path`. A panel has a row of values for each of the labels `rows`, lowest first, and a column per step of x. Returns
    the file's name."""
    pyplot = _pyplot()
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(3.6 * columns, 2.4 * lines), squeeze=False)
    flat = [axis for line in axes for axis in line]
    for axis, (title, values) in zip(flat, panels.items(), strict=False):
        axis.imshow(values, cmap="Blues", vmin=0.0, origin="lower", aspect="auto", interpolation="nearest")
        axis.set_yticks(range(len(rows)), rows, fontsize=6)
        axis.set_title(title)
        axis.set_xlabel(x_label)
    for axis in flat[len(panels) :]:
        axis.set_visible(False)
    return _save(pyplot, figure, path)


def scatter(path: Path, groups: Mapping[str, Points], x_label: str, y_label: str, *, logarithmic: bool = False) -> str:
    """Draws the (x, y) points of each group in a colour of its own, on `logarithmic` axes or linear ones, and writes
    them to `path`. Returns the file's name."""
    pyplot = _pyplot()
    figure, axis = pyplot.subplots(figsize=(7.2, 4.0))
    colours = pyplot.get_cmap("tab20").colors
    for i, (label, (x, y)) in enumerate(groups.items()):
        axis.scatter(x, y, s=5, label=label, color=[colours[i % len(colours)]], linewidths=0)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.legend(frameon=False, fontsize=7, markerscale=2, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return _save(pyplot, figure, path)
