"""Writes the pages of all experiments, their index and `summary.json`."""

import json
from collections.abc import Callable, Collection, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from experiments.report import comparison, overload, paper_figures, paper_tables
from experiments.report.constant_columns import explained
from experiments.report.in_force import in_force
from experiments.report.results import CellResults
from experiments.report.statistics import statistics_page
from experiments.report.template import render
from experiments.report.topologies import topologies
from hmas.sim.cells import CellStore
from hmas.sim.experiment import Experiment

Page = Callable[[CellResults, Path], tuple[str, dict[str, Any]]]
PAGES: dict[str, Page] = {
    "loads": comparison.loads_page,
    "traces": comparison.traces_page,
    "table1": paper_tables.table1,
    "table2": paper_tables.table2,
    "table4": paper_tables.table4,
    "figure5": paper_figures.figure5,
    "figure6": paper_figures.figure6,
    "figure7": paper_figures.figure7,
    "figure8": paper_figures.figure8,
    "figure9": paper_figures.figure9,
    "figure10": paper_figures.figure10,
    "topologies": topologies,
    "overload": overload.overload,
    "robustness": overload.robustness,
}
TITLES = {"figure5": "# Figure 5: scaling with the load\n\n"}
GENERATED = "\n<!-- Written by `python -m experiments run`; do not edit. -->\n"


def write_pages(
    experiments: Sequence[Experiment], store: CellStore, out: Path, *, whole: Collection[str], data: Path | None
) -> list[Path]:
    """Writes the pages, the index and `summary.json` into `out`, and returns their paths. Experiments with the same
    page follow each other on it. `whole` names the experiments that were run in full rather than with --quick. Raises
    ValueError for an unknown page."""
    out.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = {}
    summary: dict[str, Any] = {"quick": sorted(e.name for e in experiments if e.name not in whole)}
    index: list[str] = []
    cpu_s: dict[str, float] = {}
    missing: set[str] = set()
    for experiment in experiments:
        if experiment.page not in PAGES:
            raise ValueError(
                f"experiment {experiment.name}: page {experiment.page!r} is not known; use one of: {', '.join(PAGES)}"
            )
        results = CellResults(experiment, store)
        text, facts = PAGES[experiment.page](results, out)
        before = texts.get(experiment.page, TITLES.get(experiment.page, ""))
        texts[experiment.page] = f"{before}{text}{in_force(results)}\n"
        summary |= facts
        cpu_s |= results.cpu_s
        missing |= {cell.key() for cell in results.missing}
        seeds = "" if experiment.name not in whole else f": {len(experiment.seeds)} seeds, whole"
        index.append(f"[{experiment.title}]({experiment.page}.md){seeds}")
    texts["statistics"] = statistics_page(data)
    index += [
        "[Trace statistics of §2](statistics.md)",
        "[Figure 11: prompt lengths over time](figure11.md)",
        "[Figure 13: SLOs of the task types](figure13.md)",
    ]
    texts["simulator"] = render(
        Path(__file__).with_name("simulator.md.j2"),
        entries=dict.fromkeys(index),
        quick=summary["quick"],
        seconds=sum(cpu_s.values()),
        missing=len(missing),
    )
    summary |= {"cpu_seconds": round(sum(cpu_s.values()), 1), "cells": len(cpu_s), "missing_cells": len(missing)}
    written = []
    for name, text in sorted(texts.items()):
        path = out / f"{name}.md"
        path.write_text(text.rstrip() + "\n" + explained(text) + GENERATED, encoding="utf-8")
        written.append(path)
    path = out / "summary.json"
    path.write_text(json.dumps(_plain(summary), indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    return [*written, path]


def _plain(value: Any) -> Any:
    """Returns the value with None for numbers that were not measured."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value
