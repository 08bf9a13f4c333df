"""Writes the pages of all experiments, their index and `summary.json`."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from experiments.execute import cells_of
from experiments.pages.template import render
from experiments.report import comparison, overload, paper_figures, paper_tables
from experiments.report.constant_columns import explained
from experiments.report.in_force import in_force
from experiments.report.results import CellResults
from experiments.report.statistics import statistics_page
from experiments.report.topologies import topologies
from experiments.study import CORES, Finished, Options, Study
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.experiment import Experiment, load_experiment

Page = Callable[[CellResults, Path], tuple[str, dict[str, Any]]]
PAGES: dict[str, Page] = {
    "loads": comparison.loads_page,
    "traces": comparison.traces_page,
    "table1": paper_tables.table1,
    "table2": paper_tables.table2,
    "figure5": paper_figures.figure5,
    "figure7": paper_figures.figure7,
    "figure8": paper_figures.figure8,
    "figure9": paper_figures.figure9,
    "topologies": topologies,
    "overload": overload.overload,
    "robustness": overload.robustness,
}
TITLES = {"figure5": "# Figure 5: scaling with the load\n\nOf each of two models, it is told first what holds.\n\n"}
FOLDER = Path(__file__).parents[1]  # of the experiment files
UNPUBLISHED = ("faults", "fence", "smoke", "worth")  # run with `hmas sim run` or as studies of their own


def experiments_of(options: Options) -> tuple[list[Experiment], set[str]]:
    """Returns the experiments that are published and asked for, and the names of those that are run in full rather than
    with --quick. Raises ValueError if there are none, and for unknown names."""
    files = {path.stem: path for path in sorted(FOLDER.glob("*.yaml")) if path.stem not in UNPUBLISHED}
    chosen = [load_experiment(files[name]) for name in files if not options.only or name in options.only]
    if unknown := [n for n in options.only if n not in files] + [n for n in options.full if n not in files]:
        raise ValueError(f"no experiment {', '.join(unknown)}: there are {', '.join(files)}")
    whole = {e.name for e in chosen if not options.quick or e.name in options.full}
    within = [(e if e.name in whole else e.quick()).within(options.data) for e in chosen]
    return [replace(e, seeds=e.seeds[: options.seeds]) for e in within], whole


def pages_of(
    experiments: Sequence[Experiment], store: Finished, out: Path, *, whole: Collection[str], data: Path | None
) -> dict[str, str]:
    """Returns the pages, the index and `summary.json` by the names of their files, and draws the pictures into `out`.
    Experiments with the same page follow each other on it. `whole` names the experiments that were run in full rather
    than with --quick. Raises ValueError for an unknown page."""
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
    files = {f"{name}.md": text.rstrip() + "\n" + explained(text) for name, text in sorted(texts.items())}
    return files | {"summary.json": json.dumps(_plain(summary), indent=2, sort_keys=True, allow_nan=False) + "\n"}


def _plain(value: Any) -> Any:
    """Returns the value with None for numbers that were not measured."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not isfinite(value) else value


def _files(rows: Sequence[object], options: Options, found: Finished) -> dict[str, str]:
    experiments, whole = experiments_of(options)
    return pages_of(experiments, found, options.out, whole=whole, data=options.data)


STUDY: Study[Cell, object] = Study(
    name="run",
    about="Runs every experiment of a file, and writes their pages and an index, simulator.md. --quick: only one seed, "
    "and at most 300 s of each workload, but of those that --full names.",
    takes=("out", "seeds", "processes", "cells", "data", "only", "quick", "full", "pages_only"),
    defaults=Options(processes=CORES),
    cells=lambda options, found: [[cell for each in experiments_of(options)[0] for cell in cells_of(each)]],
    also=_files,
)
