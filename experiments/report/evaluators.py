"""Writes the page about the evaluators of plans."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.evaluators import (
    AUTO,
    EVALUATORS,
    JUDGED_S,
    PLANNED,
    POOLS,
    QUICK,
    SECONDS,
    Accuracy,
    EvaluatorCell,
    EvaluatorRow,
    accuracy,
    by_pool,
    cells,
    compute,
    overall,
    rows_of,
)
from experiments.pages.goal import Goal
from experiments.study import Finished, Options, Study
from hmas_lab.sim.provenance import WITH_MESH, source_digest

GOAL_MEAN, GOAL_SPEARMAN, GOAL_LOST = 4.0, 0.95, 1.0
JUDGES = {PLANNED: "the mesh with the plan's layout", AUTO: "the mesh that chooses its layout"}
CODE = (*WITH_MESH, "hmas_lab.placement.serving", "hmas.sim.quick", "hmas.laws.placement.fluid_bound")


def goals(rows: Sequence[EvaluatorRow]) -> list[Goal]:
    return [goal for judge in JUDGES for goal in _goals(rows, judge)]


def _goals(rows: Sequence[EvaluatorRow], judge: str) -> list[Goal]:
    complete = len(rows) == sum(len(pool.shapes) for pool in POOLS)
    found = overall(rows, QUICK, judge) if complete else Accuracy(mean=0, largest=0, bias=0, spearman=0, lost=0)
    beside = f"quick simulation beside {JUDGES[judge]}"
    met = (found.mean <= GOAL_MEAN, found.spearman >= GOAL_SPEARMAN, found.lost <= GOAL_LOST)
    words = (
        (f"{beside}: mean error at most {GOAL_MEAN:g} points", f"{found.mean:.1f}"),
        (f"{beside}: rank correlation at least {GOAL_SPEARMAN:g}", f"{found.spearman:.3f}"),
        (f"{beside}: its choice loses at most {GOAL_LOST:g} point", f"{found.lost:.1f} in the worst pool"),
    )
    return [Goal(text, told, ok if complete else None) for (text, told), ok in zip(words, met, strict=True)]


def page_of(rows: Sequence[EvaluatorRow], options: Options, found: Finished) -> dict[str, Any]:
    pools = by_pool(rows)
    wanted = sum(len(pool.shapes) for pool in POOLS)
    quick = _told(overall(rows, QUICK, PLANNED)) if pools else ("not measured",) * 4
    return {
        "error": quick[0].partition(" ")[0],
        "lost": quick[3],
        "summary": [_summary(rows, evaluator) for evaluator in EVALUATORS] if pools else [],
        "quick": [_pool(name, own) for name, own in pools.items()],
        "shapes": [_shape(row) for row in rows],
        "pools": len(pools),
        "missing": wanted - len(rows),
        "request_ms": _request_ms(rows, QUICK),
        "mesh_ms": _request_ms(rows, AUTO),
        "judged_s": JUDGED_S,
        "seconds": SECONDS,
        "rates": [(pool.name, f"{pool.rate_rps:g}") for pool in POOLS],
    }


def _request_ms(rows: Sequence[EvaluatorRow], name: str) -> str:
    """Returns the CPU time of a request in one run, in ms."""
    runs = sum(row.requests * (row.runs if name == QUICK else 1) for row in rows)
    return f"{1000.0 * sum(row.cpu_s[name] for row in rows) / runs:.2f}" if runs else "not measured"


def _told(found: Accuracy) -> tuple[str, ...]:
    return (
        f"{found.mean:.1f} / {found.largest:.0f}", f"{found.bias:+.1f}", f"{found.spearman:.2f}", f"{found.lost:.1f}"
    )  # fmt: skip


def _summary(rows: Sequence[EvaluatorRow], evaluator: str) -> tuple[str, ...]:
    cpu_ms = 1000.0 * fmean(row.cpu_s[evaluator] for row in rows)
    planned, auto = (_told(overall(rows, evaluator, judge)) for judge in (PLANNED, AUTO))
    return (evaluator, *planned, *auto, f"{cpu_ms:.0f}")


def _pool(name: str, rows: Sequence[EvaluatorRow]) -> tuple[str, ...]:
    shapes = str(len(rows))
    return (name, shapes, *_told(accuracy(rows, QUICK, PLANNED)), *_told(accuracy(rows, QUICK, AUTO)))


def _shape(row: EvaluatorRow) -> tuple[str, ...]:
    cuts = ", ".join(f"{cut:.0f} ms" for cut in row.cuts_ms)
    layout = f"{cuts}: {' + '.join(map(str, row.engines))}" if row.cuts_ms else "mixed"
    shares = (f"{row.shares[name]:.3f}" for name in (PLANNED, AUTO, *EVALUATORS))
    return (row.pool, " ".join(map(str, row.shape)), layout, *shares)


def code_of_evaluators(cell: EvaluatorCell) -> str:
    return source_digest(CODE)


STUDY = Study(
    name="evaluators",
    about="Compares what tells before a run how a pool's instances will fare (pace law, fluid LP, MaaSO's slots, runs "
    "under FCFS, the quick simulation) with the simulated mesh. It takes about fifteen minutes of one core.",
    takes=("out", "processes", "cells", "pages_only"),
    defaults=Options(cells=Path("out/evaluator-cells")),
    cells=cells,
    compute=compute,
    given=lambda cell, options, found: (),
    code=code_of_evaluators,
    rows=rows_of,
    goals=goals,
    values=page_of,
)
