"""`python -m experiments NAME` runs a study and writes its page of results; `python -m experiments NAME --help` tells
its options."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from experiments.execute import fill
from experiments.study import Options, Study
from experiments.writer import write
from hmas_lab.sim.cells import CellStore

# Where each study is; its module is imported when it is asked for, because some need packages that others do not.
STUDIES = {
    "admission": "experiments.admission",
    "compared": "experiments.live.compared",
    "data-figures": "experiments.report.data_figures",
    "day": "experiments.report.day",
    "deception": "experiments.report.deception",
    "disaggregation": "experiments.disaggregation",
    "evaluators": "experiments.report.evaluators",
    "fast": "experiments.fast",
    "fence": "experiments.fence",
    "goodput": "experiments.goodput",
    "h100": "experiments.h100",
    "jobs-forecast": "experiments.report.jobs_forecast",
    "jobs-linking": "experiments.jobs_linking",
    "live-cognition": "experiments.live.page",
    "live-layouts": "experiments.live.layouts",
    "maestro": "experiments.report.maestro",
    "model-times": "experiments.model_times",
    "niyama": "experiments.report.niyama",
    "plans": "experiments.plans.page",
    "pools": "experiments.report.pools",
    "profiles": "experiments.report.profiles",
    "regimes": "experiments.regimes",
    "regulator": "experiments.report.regulator",
    "residency": "experiments.residency.page",
    "routing": "experiments.report.routing",
    "run": "experiments.report.pages",
    "second-judge": "experiments.judge.judged_page",
    "season": "experiments.season.page",
    "transfers": "experiments.transfers",
    "whatif-live": "experiments.whatif_live",
    "plan-changes": "experiments.plan_changes",
    "worth": "experiments.report.worth",
}


def at_least(least: float, kind: Callable[[str], Any] = int) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        if (value := kind(text)) < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least:g}")
        return value

    return number


OPTIONS: dict[str, dict[str, Any]] = {
    "out": {"type": Path, "help": "folder that the page is written to"},
    "seeds": {"type": at_least(1), "help": "number of seeds, from the first on"},
    "seconds": {"type": at_least(10, float), "help": "seconds of each run, at most"},
    "processes": {"type": at_least(1), "help": "number of processes, each with one run at a time"},
    "cells": {"type": Path, "help": "folder of the figures of finished runs"},
    "data": {"type": Path, "help": "folder with traces/, prompts/ and agentic/ (HMAS_DATA); without it nothing that "
             "needs them is run"},
    "apart": {"type": Path, "help": "folder with agentic/ of further workflows: fit on --data, score these"},
    "judge": {"type": Path, "help": "python of an environment that has AISimulate"},
    "only": {"action": "extend", "nargs": "+", "help": "parts to run, such as workloads; default: all"},
    "rate": {"type": float, "help": "mean requests per second"},
    "files": {"nargs": 2, "type": Path, "help": "the two files of measured figures; default: those of the page"},
    "at": {"action": "extend", "nargs": "+", "type": float, "help": "loads to run, in λ*; default: all"},
    "quick": {"action": "store_true", "help": "run one seed, and at most 300 s of each workload"},
    "full": {"action": "extend", "nargs": "+", "help": "with --quick: what is run in full all the same"},
    "pages_only": {"action": "store_true", "help": "run nothing; write the page from the runs that are finished"},
}  # fmt: skip


def options_of(study: Study[Any, Any], words: Sequence[str]) -> Options:
    """Reads the options that a study takes."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments {study.name}", description=study.about)
    for name in study.takes:
        own = getattr(study.defaults, name)
        shown = {} if own in (None, (), False) else {"help": f"{OPTIONS[name]['help']} [{own}]"}
        parser.add_argument(f"--{name.replace('_', '-')}", **OPTIONS[name] | shown)
    given = {name: value for name, value in vars(parser.parse_args(words)).items() if value not in (None, False)}
    given |= {name: tuple(given[name]) for name in ("only", "at", "full", "files") if name in given}
    options = replace(study.defaults, **given)
    if "data" in study.takes and options.data is None:
        there = [Path(text) for text in (os.environ.get("HMAS_DATA"), "data") if text and Path(text).is_dir()]
        options = replace(options, data=next(iter(there), None))
    return options


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("name", choices=sorted(STUDIES), help="the study")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options")
    asked = parser.parse_args(words)
    study: Study[Any, Any] = import_module(STUDIES[asked.name]).STUDY
    options = options_of(study, asked.options)
    store = CellStore(options.cells, study.code)
    try:
        if not options.pages_only:
            fill(study, options, store, lambda done, total, text: print(f"{done} of {total}: {text}", flush=True))
        for path in write(study, options, store):
            print(f"wrote {path}")
    except ValueError as error:
        parser.exit(2, f"{study.name}: {error}\n")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
