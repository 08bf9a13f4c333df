"""Page of the profiler: errors by cell, and MaaSO's Figures 1 and 2 from measurements."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.profiles import MOST_LTO, ScalingRow, goals_of, measured_loops, rows_of
from experiments.study import Finished, Options, Study
from hmas.mesh.profiling.fitted_types import fit_cell
from hmas.mesh.profiling.known_cells import CELLS, SHIPPED_CELLS
from hmas.mesh.profiling.silicon import MeasuredLoop

SHOWN = "llama31-70b-fp8-vllm-h200"  # measured on 1, 2, 4 and 8 cards
PROMPT = OUTPUT = 1024
BATCHES = (1, 8, 16, 32, 64, 128, 256)
TableLine = tuple[object, ...]


def figure_1(loops: Sequence[MeasuredLoop]) -> tuple[list[int], list[TableLine]]:
    """Returns the numbers of cards, and a line for each load: on each number, the tokens/s of one request and of all
    per card, as measured."""
    chosen = {(x.users, x.gpus): x.tpot_s for x in loops if (x.prompt, x.output) == (PROMPT, OUTPUT)}
    gpus = sorted({cards for _, cards in chosen})
    lines: list[TableLine] = []
    for users in sorted({users for users, _ in chosen}):
        found = [(cards, chosen.get((users, cards))) for cards in gpus]
        cells = [f"{1 / s:.0f} / {users / s / cards:.0f}" if s is not None else "" for cards, s in found]
        lines.append((f"{users:g}", *cells))
    return gpus, lines


def figure_2(name: str, loops: Sequence[MeasuredLoop]) -> list[TableLine]:
    """Returns a line for each batch limit: on each number of cards, the time per token of a full batch in times that of
    a request alone on the fewest cards."""
    kinds = [each.kind for each in fit_cell(CELLS[name], loops).types]
    context = PROMPT + OUTPUT // 2
    alone_s = kinds[0].step.step_s(0, 1, context, 0.0)
    return [
        (batch, *(f"{kind.step.step_s(0, batch, batch * context, 0.0) / alone_s:.2f}" for kind in kinds))
        for batch in BATCHES
    ]


def values_of(rows: Sequence[ScalingRow], options: Options, found: Finished) -> Mapping[str, object]:
    loops = measured_loops(options)[SHOWN]
    gpus, lines = figure_1(loops)
    fitted = [row for row in rows if not row.refused]
    drawn = [row for row in rows if row.curves]
    queued = next(row for row in rows if row.cell == "gpt-oss-120b-fp4-vllm-h100")
    shipped = {cell.name for cell in SHIPPED_CELLS}
    judged = [row for row in rows if row.cell in MOST_LTO]
    return {
        "cells": [_cells(row, shipped) for row in fitted],
        "refused": [(row.cell, row.refused) for row in rows if row.refused],
        "most": _share(max(row.lto for row in judged)),
        "ideal": _range([fmean(row.ideal.values()) for row in judged]),
        "loops": sum(row.loops for row in rows),
        "used": sum(row.used for row in rows),
        "queued": sum(row.queued for row in rows),
        "outgrown": sum(row.outgrown for row in rows),
        "repeated": sum(row.repeated for row in rows),
        "with_queued": _share(queued.with_queued),
        "without_queued": _share(queued.lto),
        "curves": [_curve(row) for row in drawn],
        "behind": sum((row.decay_beyond or 0.0) > (row.step_beyond or 0.0) for row in drawn),
        "ahead": [row.cell for row in drawn if (row.decay_beyond or 0.0) < (row.step_beyond or 0.0)],
        "decay": _range([row.decay_beyond or 0.0 for row in drawn]),
        "step": _range([row.step_beyond or 0.0 for row in drawn]),
        "shown": SHOWN,
        "gpus": gpus,
        "speeds": lines,
        "boundaries": figure_2(SHOWN, loops),
    }


def _cells(row: ScalingRow, shipped: set[str]) -> TableLine:
    talks = row.talking if row.lto < fmean(row.plain.values()) else row.plain
    return (
        row.cell + (" \\*" if row.cell in shipped else ""),
        row.used,
        _by_cards(row.own),
        _by_cards(talks),
        f"**{_share(row.lto)}**",
        "with talk" if talks is row.talking else "a + b/g",
        _share(fmean((row.plain if talks is row.talking else row.talking).values())),
        _share(fmean(row.ideal.values())),
    )


def _curve(row: ScalingRow) -> TableLine:
    figures = (row.decay_within, row.step_within, row.decay_beyond, row.step_beyond)
    return row.cell, row.curves, *(_share(each or 0.0) for each in figures)


def _by_cards(errors: Mapping[int, float]) -> str:
    return ", ".join(f"{gpus}: {100 * error:.1f}" for gpus, error in errors.items())


def _share(error: float) -> str:
    return f"{100 * error:.1f} %"


def _range(errors: Sequence[float]) -> str:
    return f"{100 * min(errors):.0f} to {100 * max(errors):.0f} %"


STUDY: Study[None, ScalingRow] = Study(
    name="profiles",
    about="Fits what engines cost on 1 to 8 cards to published measurements, and tells the error on numbers of cards "
    "that a fit has not seen. It takes ten seconds and needs --data with perf/.",
    takes=("out", "data"),
    rows=rows_of,
    goals=goals_of,
    values=values_of,
)
